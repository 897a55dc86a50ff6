"""The choice of ``--transform auto``: codes of a sample are made and searched for each s."""

from mercore.jobs.notices import echo
from mercore.jobs.printing import print_transforms
from mercore.jobs.progress import waiting
from mercore.pipeline.encode import check_every_row
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.transform import Transformed
from mercore.pipeline.search.choices.transform import choose_transform
from mercore.stores.codes import CodeStore
from mercore.stores.errors import ExistsError
from mercore.stores.vectors import Vectors, VectorStore
from mercore.stores.wording import option, setting


def chosen_transform(
    vectors: Vectors, kernel: Kernel, encoder: EncoderSpec, *, threads: int
) -> float:
    """Return the s with the greatest recall on a sample; print the recalls of all.

    Raises
    ------
    InputError
        If a row is outside the kernel's domain.
    """
    if not isinstance(vectors, VectorStore):
        check_every_row(vectors, kernel)  # errors of a sample would name other row numbers
    with waiting("measuring transforms on a sample"):
        choice = choose_transform(vectors, kernel, encoder, threads=threads)
    print_transforms(choice)
    return choice.scale


def begun_transform(store: CodeStore | None) -> float | None:
    """Return the s of existing codes, or None if there are none.

    The s is not chosen again: another version of mercore may choose another.

    Raises
    ------
    ExistsError
        If they have no transform.
    """
    if store is None:
        return None
    kernel = store.spec.kernel
    if kernel["name"] != Transformed.name:
        raise ExistsError(
            f"{store.where} holds codes of kernel {kernel['name']} without a transform: expected "
            f"codes that are begun with one, or a new path. Fix: leave {option('transform')} "
            "out, or name another path."
        )
    scale = float(kernel["configuration"]["scale"])
    echo(f"{store.where} is begun with {setting(transform=scale)}: going on with that", err=True)
    return scale
