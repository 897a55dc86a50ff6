"""The one tree of errors: each says what is wrong, what was found and expected, where, and the mend."""

from typing import ClassVar


class MercoreError(Exception):
    """Base of every error that a user of mercore can cause or meet."""

    code: ClassVar[str] = "error"


class InputError(MercoreError, ValueError):
    """The input's values or options are not usable."""

    code = "input"


class ShapeError(InputError):
    """An array has the wrong shape, or a count is out of range."""

    code = "shape"


class NotFoundError(MercoreError):
    """A path that was named does not exist."""

    code = "not-found"


class ExistsError(MercoreError):
    """A path that would be written exists already and holds something else."""

    code = "exists"


class FormatError(MercoreError):
    """A file's header, size or version does not fit its format."""

    code = "format"


class IntegrityError(MercoreError):
    """Bytes on disk are not those that the receipt vouches for, or are missing."""

    code = "integrity"


class BudgetError(MercoreError):
    """The work would not fit the memory or disk that it may use."""

    code = "budget"


class LeaseError(MercoreError):
    """Another process has taken over what this one was working on."""

    code = "lease"


class ClusterError(MercoreError):
    """The Dask cluster cannot be reached, or lost the work."""

    code = "cluster"


class StorageError(MercoreError):
    """The operating system refused to read or write (disk full, no permission)."""

    code = "storage"
