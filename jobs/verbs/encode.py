"""``mercore encode``: a vector store to a code store; parts that are there already are kept."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from mercore.jobs.encoder_options import (
    CHOOSE,
    option_names,
    refuse_options,
    spec_of_options,
    spec_within,
)
from mercore.jobs.notices import echo
from mercore.jobs.options import AUTO, Report, check_whole, refuse_unused
from mercore.jobs.progress import progress, waiting
from mercore.jobs.resources.disk import check_disk, encoded_bytes
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.limits import check_budget, taken_at, workers_within
from mercore.jobs.verbs.choices.bound import begun_bound, chosen_bound
from mercore.jobs.verbs.choices.encoder import EncoderChoice
from mercore.jobs.verbs.choices.transform import begun_transform, chosen_transform
from mercore.jobs.verbs.info import describe_codes
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions, exclusive
from mercore.jobs.verbs.resuming import begun, code_states, restored
from mercore.pipeline.encode import EncodePlan, check_every_row, encode_bytes, lay_out
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.transform import Transformed
from mercore.pipeline.linear_map import mapped_vectors
from mercore.pipeline.search.choices.bound import choose_bytes, smallest_bound
from mercore.pipeline.search.choices.transform import SCALES, choose_transform_bytes
from mercore.stores.codes import CodeStore
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.part_store.growth import publish_growth
from mercore.stores.rows import foreign_source, open_vectors
from mercore.stores.vector_views import EarlierVectors
from mercore.stores.vectors import Vectors, VectorStore, dropped_name
from mercore.stores.wording import option, setting


@dataclass(frozen=True, kw_only=True)
class BoundChoice:
    """The choice of the bound with the cheapest exact search, in place of an encoder."""

    random_state: int = 0
    bounds: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(VerbOptions):
    """The options of an encode; ``force`` makes bounds where scoring every row is cheaper."""

    kernel: KernelOptions
    encoder: EncoderSpec | BoundChoice | EncoderChoice = EncoderChoice()  # noqa: RUF009
    part_rows: int | None = None
    compressor: str = "none"
    force: bool = False
    execution: Execution = Execution(threads_option="workers")  # noqa: RUF009

    def check(self) -> None:
        """Refuse an unknown kernel or compressor."""
        check_whole(part_rows=self.part_rows)
        check_compressor(self.compressor)
        if self.force and not isinstance(self.encoder, BoundChoice):
            refuse_unused(f"it is for {setting(encoder=CHOOSE)}", force=self.force)
        if self.chooses_transform and self.encoder.bounds:
            refuse_unused("bounds are the same under any transform", transform=AUTO)
        self.plain_kernel.check()
        self.execution.check()

    def check_path(self, target: str) -> None:
        """Refuse a path that holds something else, and options that no encoder to choose has."""
        if begun(target, CodeStore) is None and isinstance(self.encoder, EncoderChoice):
            self.encoder.check()

    @property
    def chooses_transform(self) -> bool:
        """Whether the transform is to be chosen on a sample."""
        return self.kernel.transform == AUTO

    @property
    def plain_kernel(self) -> KernelOptions:
        """The kernel, without its transform if that is to be chosen."""
        return replace(self.kernel, transform=None) if self.chooses_transform else self.kernel


def encoder_from_values(
    name: str | None, values: Mapping[str, object]
) -> EncoderSpec | BoundChoice | EncoderChoice:
    """Return an encoder with its options, or the choice of one; refuse those of other encoders."""
    given = {option: values.get(option) for option in option_names()}
    if name is None:
        return EncoderChoice(
            given={name: value for name, value in given.items() if value is not None}
        )
    if name != CHOOSE:
        return spec_of_options(name, given)
    refuse_options(given, CHOOSE, ("random_state",))
    seed = given["random_state"]
    return BoundChoice(random_state=seed if isinstance(seed, int) else 0)


@dataclass(frozen=True, kw_only=True)
class EncodeTask:
    """An encode that is open and checked.

    ``plan`` is None until a bound or a transform is chosen; ``kernel`` is without the transform
    until then. ``why`` is the reason why the encoder was chosen, or None if it is given or begun.
    """

    vectors: Vectors
    kernel: Kernel
    encoder: EncoderSpec | BoundChoice
    codes: str
    options: EncodeOptions
    plan: EncodePlan | None
    why: str | None = None

    @property
    def execution(self) -> Execution:
        """The execution, with as many threads as the memory allows."""
        execution = self.options.execution
        if execution.remote or execution.threads is not None or self._chooses_bound:
            return execution
        threads = workers_within(self._bytes, execution.thread_count, execution.memory)
        return replace(execution, threads=threads)

    @property
    def _chooses_bound(self) -> bool:
        return self.plan is None and isinstance(self.encoder, BoundChoice)

    def _bytes(self, workers: int) -> int:
        """Return the memory that encoding takes, or the choice that comes before it."""
        if self.plan is not None:
            return encode_bytes(self.plan, workers)
        if isinstance(self.encoder, BoundChoice):
            return choose_bytes(self.vectors, self.kernel)
        return choose_transform_bytes(self.vectors, self.encoder, workers)

    def check_limits(self) -> None:
        """Refuse an encode that exceeds the memory or the free disk."""
        self._check_limits(self.execution)

    def _check_limits(self, execution: Execution) -> None:
        needed, memory = self._bytes(execution.thread_count), execution.memory
        if self._chooses_bound:
            check_budget("choosing a bound", needed, memory, f"name an {option('encoder')}")
        elif self.plan is None:
            fix = f"{setting(transform=1)}, or a smaller model"
            check_budget("choosing a transform", needed, memory, fix)
        else:
            size = sum(encoded_bytes(self.plan).values())
            check_disk("encoding", self.codes, size - location_of(self.codes).stored_bytes())
            fix = "a smaller model" + execution.or_fewer
            check_budget("encoding", taken_at(execution, needed), memory, fix)

    def with_choice(self) -> "EncodeTask":
        """Return the task with its bound and transform; what is not known yet is chosen."""
        if self.plan is not None:
            return self
        execution = self.execution
        self._check_limits(execution)
        vectors, kernel, spec = self.vectors, self.kernel, self.encoder
        if isinstance(spec, BoundChoice):
            spec = chosen_bound(
                vectors,
                kernel,
                self.options.kernel,
                random_state=spec.random_state,
                force=self.options.force,
            )
        else:
            threads = execution.thread_count
            kernel = Transformed(kernel, chosen_transform(vectors, kernel, spec, threads=threads))
        plan = _laid_out(vectors, kernel, spec, self.options)
        return replace(self, kernel=kernel, plan=plan)

    def run(self) -> Report:
        """Encode the parts that are missing or wrong; return a description of the codes."""
        began = time.perf_counter()  # choosing is a part of the work
        task = self.with_choice()
        assert task.plan is not None
        if not isinstance(task.vectors, VectorStore):
            check_every_row(task.vectors, task.kernel)
        execution = task.execution
        task._check_limits(execution)
        store, done_now = encode_missing(task.plan, task.codes, task.options.kernel.file, execution)
        seconds = round(time.perf_counter() - began, 3)
        why = {"why": self.why} if self.why else {}
        return {**describe_codes(store), **why, "parts_done_now": done_now, "seconds": seconds}


def open_encode(vectors: str, codes: str, options: EncodeOptions) -> EncodeTask:
    """Open the vectors; refuse parameters that do not fit them, and a path that is taken.

    A choice of the encoder is printed, unless something is refused.
    """
    options.check()
    rows = mapped_vectors(open_vectors(vectors), options.kernel.open_map())
    stored = begun(codes, CodeStore)
    earlier = code_states(stored, rows)
    fitted = EarlierVectors(rows, earlier.states[0]) if earlier.states else rows
    kernel = options.plain_kernel.open(fitted)  # a γ of median stays that of the first rows
    encoder, why, notice = options.encoder, None, None
    if isinstance(encoder, EncoderChoice):
        scaled = options.chooses_transform
        encoder, why, notice = encoder.resolved(stored, fitted, kernel, scaled=scaled)
    if not isinstance(encoder, BoundChoice):
        encoder.check_kernel(kernel)
        encoder = spec_within(encoder, fitted.rows, rows.dims)
    task = EncodeTask(
        vectors=rows,
        kernel=kernel,
        encoder=encoder,
        codes=codes,
        options=options,
        plan=None,
        why=why,
    )
    task = _planned(task, stored, earlier.part_rows)
    if notice:
        echo(notice, err=True)
    return task


def _planned(task: EncodeTask, stored: CodeStore | None, part_rows: int | None) -> EncodeTask:
    """Return the task with its plan, unless a bound or a transform is to be chosen first."""
    rows, kernel, encoder, options = task.vectors, task.kernel, task.encoder, task.options
    if options.chooses_transform:
        assert not isinstance(encoder, BoundChoice)
        scale = begun_transform(stored)
        if scale is None:
            _laid_out(rows, Transformed(kernel, SCALES[0]), encoder, options)  # refuses parameters
            return task
        kernel = Transformed(kernel, scale)
    if isinstance(encoder, BoundChoice):
        bound = begun_bound(stored, encoder.random_state)
        if bound is None:
            _laid_out(rows, kernel, smallest_bound(kernel), options)  # refuses what fits no bound
            return task
        encoder = bound
    if options.part_rows is None:
        options = replace(options, part_rows=part_rows)
    plan = _laid_out(rows, kernel, encoder, options)
    resumed_codes(plan, stored)
    return replace(task, kernel=kernel, plan=plan)


def resumed_codes(plan: EncodePlan, codes: CodeStore | None) -> CodeStore | None:
    """Return existing codes, if an encode by the plan goes on with them.

    They may be of an earlier state of the vectors, to which rows were appended.

    Raises
    ------
    ExistsError
        If they are others; the message names the difference.
    """
    if codes is None:
        return None
    stored = with_states(plan, codes)
    return codes.resumed(stored.spec, stored.unfitted)


def with_states(plan: EncodePlan, codes: CodeStore | None) -> EncodePlan:
    """Return the plan of the state that codes have, which may be an earlier one.

    New codes, and codes that cannot grow to the plan, have the state of the plan.
    """
    found = code_states(codes, plan.vectors)
    plan = replace(plan, states=found.states)
    return plan.before() if found.grow else plan


def encode_missing(
    plan: EncodePlan, codes: str, custom_file: str | None, execution: Execution
) -> tuple[CodeStore, int]:
    """Encode the parts that are missing or wrong; return the store and the number of them."""
    from mercore.jobs.cluster.connect import connect  # Dask loads when it is used
    from mercore.jobs.cluster.encode_parts import Sources, encode_parts

    with exclusive(codes) as lease, connect(execution) as client:

        def encode(store: CodeStore, parts: Sequence[int]) -> int:
            if parts:
                lease.check()  # fitting may have taken long
                rows = sum(np.diff(store.store.bounds(part))[0] for part in parts)
                with progress("encode", rows, "rows") as advance:
                    read = foreign.source.digests if foreign else None
                    where = str(plan.vectors.where)
                    sources = Sources(where, custom_file, store.store.header, read)
                    encode_parts(client, codes, sources, parts, lease.checked(advance))
                store.store.sweep()  # syncs the folders; killed workers leave scratch files
            return len(parts)

        there, foreign = CodeStore.begun(codes), foreign_source(plan.vectors)
        stored = with_states(plan, there)
        store = resumed_codes(plan, there) or _created(codes, plan)
        content = foreign.content() if foreign else None
        store.record_source(location_of(plan.vectors.where).resolved(), content)
        done = encode(store, restored(store, lambda: stored.model))
        if store.rows < plan.vectors.rows:
            grown = replace(plan, states=code_states(store, plan.vectors).states)
            store = _next_state(store, grown)
            done += encode(store, list(store.undone_parts(_first_undone(store))))
            lease.check()
            publish_growth(store.store)
    return store, done


def _next_state(store: CodeStore, plan: EncodePlan) -> CodeStore:
    """Return codes in the state to which they grow: with all rows of the vectors."""
    last = dropped_name(len(plan.states))
    new = {name: rows for name, rows in plan.dropped.items() if name == last}
    return store.grown_to(plan.spec, plan.vectors.rows, new)


def _first_undone(store: CodeStore) -> int:
    """Return the first part that has more rows than before the store grew."""
    layout = store.store.layout
    return int(layout.grown_from[-1]["rows"]) // layout.part_rows


def _laid_out(
    vectors: Vectors, kernel: Kernel, encoder: EncoderSpec, options: EncodeOptions
) -> EncodePlan:
    return lay_out(
        vectors, kernel, encoder, part_rows=options.part_rows, compressor=options.compressor
    )


def _created(codes: str, plan: EncodePlan) -> CodeStore:
    """Fit the model and make a code store with it."""
    with waiting(f"fitting {plan.encoder.name}"):
        model = plan.model
    source = location_of(plan.vectors.where).resolved()
    return CodeStore.create(codes, plan.spec, plan.layout, model, source_path=source)
