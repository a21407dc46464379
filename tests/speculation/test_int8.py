"""The int8 engine: the same bits whatever shares a pass, the right architecture, harmless wrong use."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cache.sealed import is_sealed_and_whole
from speculation.verifier.base import VerifierError
from speculation.verifier.int8 import MAX_NODES, Int8Verifier
from tests.speculation.int8_models import SHAPES, VOCAB, load, write_model

TEXT = [random.Random(1).randrange(VOCAB) for _ in range(300)]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products gain nothing from more, and a busy machine loses much."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(params=list(SHAPES))
def verifier(request: pytest.FixtureRequest, models: Path) -> Int8Verifier:
    return load(models, request.param)


def kv(verifier: Int8Verifier, slot: int) -> Tensor:
    return verifier._kv[slot].data[:, : verifier.length(slot)].clone()


def filled(verifier: Int8Verifier, tokens: list[int], *, chunk: int = 300) -> int:
    slot = verifier.open_slot()
    for first in range(0, len(tokens), chunk):
        verifier.prefill(slot, tokens[first : first + chunk])
    return slot


def branching_tree(count: int, rng: random.Random) -> list[int]:
    """A best chain first, then nodes hung anywhere."""
    chain = count // 3
    return [node - 1 if node < chain else rng.randrange(-1, node) for node in range(count)]


def path_to(node: int, parents: list[int]) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def test_every_pass_size_gives_the_same_bits(verifier: Int8Verifier) -> None:
    start = 150
    slot = filled(verifier, TEXT[:start])
    whole = verifier.verify(slot, TEXT[start : start + 64]).clone()
    verifier.commit(slot, range(64))
    expected = kv(verifier, slot)
    for size in (1, 2, 3, 5, 8, 13, 16, 31, 32, 63):
        verifier.rollback(slot, start)
        for first in range(0, 64, size):
            tokens = TEXT[start + first : start + min(first + size, 64)]
            logits = verifier.verify(slot, tokens)
            assert torch.equal(logits, whole[first : first + len(tokens)]), f"{size} positions, from {first}"
            verifier.commit(slot, range(len(tokens)))
        assert torch.equal(kv(verifier, slot), expected), f"KV with {size} positions"


def test_every_prefill_chunk_gives_the_same_bits(verifier: Int8Verifier) -> None:
    whole = kv(verifier, filled(verifier, TEXT))
    for chunk in (1, 7, 64, 100, 128):
        assert torch.equal(kv(verifier, filled(verifier, TEXT, chunk=chunk)), whole), f"chunks of {chunk}"


def test_passes_that_only_some_of_the_threads_share_give_the_same_bits() -> None:
    """A flat operator goes to one thread per 32768 floats: 14 to 20 rows of this width to three of four."""
    from speculation.verifier.int8_model import _activation

    width = 4864
    gate = (torch.randn(200, 2 * width, generator=torch.Generator().manual_seed(0)) * 4)[:, :width]
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        activation = _activation(width)
        alone = torch.cat([activation(row[None]) for row in gate])
        for size in (14, 16, 20):
            together = torch.cat([activation(rows) for rows in gate.split(size)])
            assert torch.equal(together, alone), size
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("start", [0, 3, 62, 120, 190])
def test_tree_nodes_equal_their_chains(verifier: Int8Verifier, start: int) -> None:
    rng = random.Random(start)
    for count in (2, 9, 33, 64):
        parents = branching_tree(count, rng)
        tokens = [rng.randrange(VOCAB) for _ in range(count)]
        slot = filled(verifier, TEXT[:start])
        logits = verifier.verify(slot, tokens, parents).clone()
        deepest = max(range(count), key=lambda n: len(path_to(n, parents)))
        for node in {deepest, count - 1, rng.randrange(count)}:
            path = path_to(node, parents)
            verifier.verify(slot, tokens, parents)
            verifier.commit(slot, path)
            kept = kv(verifier, slot)
            verifier.rollback(slot, start)
            chain = verifier.verify(slot, [tokens[n] for n in path])
            assert torch.equal(chain, logits[path]), f"node {node} of {count}"
            verifier.commit(slot, range(len(path)))
            assert torch.equal(kv(verifier, slot), kept), f"KV of node {node} of {count}"
            verifier.rollback(slot, start)


def test_the_deepest_tree_equals_its_chain(models: Path) -> None:
    verifier = load(models, "qwen2")
    parents = [-1, -1, *range(1, MAX_NODES - 1)]  # a lone root, then a chain in the wrong slots
    tokens = TEXT[:MAX_NODES]
    for start in (1, 64, 127, 190):
        slot = filled(verifier, TEXT[:start])
        tree = verifier.verify(slot, tokens, parents).clone()
        assert torch.equal(verifier.verify(slot, tokens[1:]), tree[1:])


def test_a_reused_slot_equals_a_fresh_one(verifier: Int8Verifier) -> None:
    rng = random.Random(7)
    text = TEXT[:120]
    slot = filled(verifier, text)
    for _ in range(12):
        kept = rng.randrange(len(text) + 1)
        added = [rng.randrange(VOCAB) for _ in range(rng.randrange(1, 40))]
        text = (text[:kept] + added)[:250]
        verifier.rollback(slot, kept)
        verifier.prefill(slot, text[kept:])
        if rng.random() < 0.5:
            slot = verifier.copy_slot(slot, len(text))
        verifier.verify(slot, TEXT[:9])  # leaves junk behind the committed positions
    warm = verifier.verify(slot, TEXT[:3])
    fresh = filled(verifier, text)
    assert torch.equal(kv(verifier, slot), kv(verifier, fresh))
    assert torch.equal(verifier.verify(fresh, TEXT[:3]), warm)


def test_a_pass_does_not_read_the_embedding_table(verifier: Int8Verifier) -> None:
    capabilities = verifier.capabilities
    assert capabilities.unread_bytes % (VOCAB * 2) == 0  # bfloat16
    assert 0 < capabilities.unread_bytes < capabilities.weight_bytes


def test_the_self_test_finds_rows_invariant(verifier: Int8Verifier) -> None:
    assert verifier.capabilities.row_invariant


def test_the_self_test_sees_attention_that_is_not_invariant(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from speculation.verifier.attention import Attention

    layer = Attention.layer

    def nudged(attention: Attention, index: int) -> Tensor:
        return layer(attention, index) * (1 + 1e-6 * len(attention.rows))

    monkeypatch.setattr(Attention, "layer", nudged)
    assert not load(models, "qwen2").capabilities.row_invariant


@pytest.mark.parametrize("shape", SHAPES)
def test_the_architecture_is_that_of_transformers(shape: str, models: Path) -> None:
    """With float32 products over the int8 weights nothing but the weights' rounding is left."""
    from transformers import AutoModelForCausalLM

    verifier = load(models, shape, "float32")
    path = models / "".join(c if c.isalnum() else "-" for c in shape)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = model(torch.tensor([TEXT[:200]])).logits[0, 150:]
    logits = verifier.verify(filled(verifier, TEXT[:150]), TEXT[150:200])
    relative = (logits - expected).std() / expected.std()
    assert relative < 0.03, relative


@pytest.mark.parametrize("backend", ["onednn", "bfloat16", "float32"])
def test_fallbacks_are_invariant_and_close(backend: str, models: Path) -> None:
    fallback, fastest = load(models, "qwen2", backend), load(models, "qwen2")
    assert fallback.capabilities.dtype == ("int8" if backend == "onednn" else backend)
    assert fallback.capabilities.row_invariant
    logits = [v.verify(filled(v, TEXT[:140]), TEXT[140:150]) for v in (fallback, fastest)]
    assert torch.nn.functional.cosine_similarity(*logits, dim=-1).min() > 0.99


def test_a_cpu_without_the_operators_falls_back(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from speculation.verifier import int8_linear

    def missing(*_: object) -> None:
        raise NotImplementedError("no such operator")

    monkeypatch.setitem(int8_linear.BACKENDS, "packed", missing)
    monkeypatch.setitem(int8_linear.BACKENDS, "onednn", missing)
    verifier = load(models, "llama, grouped heads")
    assert verifier.capabilities.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "gpt2"}, "model type 'gpt2'"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"model_type": "mistral", "sliding_window": 64}, "sliding-window"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn'"),
        ({"partial_rotary_factor": 0.5}, "partial rotary"),
        ({"head_dim": 20}, "head size of 20"),
    ],
)
def test_other_shapes_are_refused_with_a_reason(
    change: dict[str, object], reason: str, tmp_path: Path
) -> None:
    from speculation.verifier.architecture import UnsupportedModelError, read_architecture

    write_model(tmp_path, "llama, grouped heads")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(UnsupportedModelError, match=reason):
        read_architecture(tmp_path)


WRONG_USE = {
    "rollback past the start": lambda v, s: v.rollback(s, -1),
    "rollback past the end": lambda v, s: v.rollback(s, 101),
    "no tokens": lambda v, s: v.verify(s, []),
    "too many nodes": lambda v, s: v.verify(s, [1] * (MAX_NODES + 1)),
    "an id past the vocabulary": lambda v, s: v.verify(s, [1, VOCAB]),
    "a negative id": lambda v, s: v.prefill(s, [-1]),
    "a cycle": lambda v, s: v.verify(s, [1, 2, 3], [-1, 2, 1]),
    "its own parent": lambda v, s: v.verify(s, [1, 2], [-1, 1]),
    "too few parents": lambda v, s: v.verify(s, [1, 2], [-1]),
    "past the context, prefill": lambda v, s: v.prefill(s, [1] * 413),
    "past the context, verify": lambda v, s: (v.prefill(s, [1] * 412), v.verify(s, [1])),
    "a copy longer than its source": lambda v, s: v.copy_slot(s, 101),
    "commit before verify": lambda v, s: v.commit(s, [0]),
    "commit of a path with a gap": lambda v, s: (v.verify(s, [1, 2, 3]), v.commit(s, [0, 2])),
    "commit of an unknown node": lambda v, s: (v.verify(s, [1]), v.commit(s, [0, 1])),
    "a closed slot": lambda v, s: v.length(s + 1000),
}


@pytest.mark.parametrize("case", WRONG_USE)
def test_wrong_use_is_refused_and_changes_nothing(case: str, models: Path) -> None:
    verifier = load(models, "qwen2")
    slot = filled(verifier, TEXT[:100])
    before = kv(verifier, slot)
    with pytest.raises(VerifierError):
        WRONG_USE[case](verifier, slot)
    verifier.rollback(slot, 100)
    assert torch.equal(kv(verifier, slot), before)
    assert torch.equal(
        verifier.verify(slot, TEXT[:4]), verifier.verify(filled(verifier, TEXT[:100]), TEXT[:4])
    )


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b-q4", "smollm2-135m-q4"])
def test_real_models_give_the_same_bits(name: str) -> None:
    from cache.models import resolve
    from speculation.verifier.choice import choose, row_invariance

    verifier = choose("cpu", "int8", "auto", resolve(name))
    assert verifier.capabilities.row_invariant
    assert row_invariance(verifier) == {"prefill in pieces": True, "pass sizes": True, "trees": True}


def test_a_row_of_zeros_stays_zero() -> None:
    from speculation.verifier.int8_linear import BACKENDS, quantize, row_scale

    weight, scale = quantize(torch.randn(32, 64), pair_bound=True)
    rows = torch.zeros(3, 64)
    rows[1] = 1.0
    largest = row_scale(rows)
    for backend, make in BACKENDS.items():
        result = make(weight, scale)(rows / largest) * largest
        assert (result[0] == 0).all(), backend
        assert result.isfinite().all(), backend


def test_no_pair_of_products_can_saturate() -> None:
    from speculation.verifier.int8_linear import BACKENDS, quantize

    weight, scale = quantize(torch.rand(64, 128) + 0.5, pair_bound=True)
    rows = torch.ones(4, 128)
    exact = (rows * 127) @ weight.float().T * (scale / 127)
    assert torch.allclose(BACKENDS["packed"](weight, scale)(rows), exact, rtol=1e-5)


def test_outliers_in_the_activations_are_moved_into_the_weights() -> None:
    from speculation.verifier.calibration import best_factors

    generator = torch.Generator().manual_seed(0)
    rows, weight = torch.randn(64, 48, generator=generator), torch.randn(40, 48, generator=generator)
    rows[:, 7] *= 300
    factors = best_factors(rows, weight, pair_bound=True)
    assert factors[7] > 5 * factors.median()
    assert torch.equal(best_factors(torch.ones(8, 48), weight, pair_bound=True), torch.ones(48))


def test_rounding_twice_brings_rows_nearer_and_keeps_them_invariant() -> None:
    from speculation.verifier.int8_linear import BACKENDS, quantize, row_scale, twice_rounded

    generator = torch.Generator().manual_seed(0)
    weight, scale = quantize(torch.randn(96, 128, generator=generator), pair_bound=True)
    rows = torch.randn(70, 128, generator=generator)
    rows[:, 5] *= 50  # an outlier leaves the others few levels
    rows /= row_scale(rows)
    exact = rows @ (weight.float() * scale[:, None]).T
    once, twice = BACKENDS["packed"](weight, scale), twice_rounded(BACKENDS["packed"](weight, scale))
    assert (twice(rows) - exact).std() < (once(rows) - exact).std() / 50
    for size in (1, 3, 8, 33):
        assert torch.equal(torch.cat([twice(piece) for piece in rows.split(size)]), twice(rows)), size


@pytest.mark.parametrize("limit", [-1.0, 1e9])
def test_activations_are_rounded_twice_where_the_measured_divergence_asks_for_it(
    limit: float, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cache.sealed import SealedFile
    from speculation.verifier import weights

    load(models, "llama, tied, biased")
    monkeypatch.setattr(weights, "MOST_DIVERGENCE", limit)
    verifier = Int8Verifier.load(models / "llama--tied--biased", "small", "key", tmp_path)
    [path] = tmp_path.glob("*.safetensors")
    assert (weights.TWICE_ROUNDED in SealedFile(path)) == (limit < 0)
    assert verifier.capabilities.row_invariant
    test_every_pass_size_gives_the_same_bits(verifier)
    test_tree_nodes_equal_their_chains(verifier, 62)


def test_the_divergence_is_that_of_the_distributions() -> None:
    from speculation.verifier.weights import divergence

    logits = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]])
    assert divergence(logits, logits + 7) == pytest.approx(0, abs=1e-6)
    even = divergence(torch.log(torch.tensor([[0.5, 0.5]])), torch.log(torch.tensor([[0.9, 0.1]])))
    assert even == pytest.approx(0.5108, abs=1e-3)


def test_the_text_that_weights_are_rounded_by_never_changes() -> None:
    """Other text means other weights under the same name in the cache: then the format's number must change."""
    import hashlib

    from speculation.verifier import calibration

    text = Path(calibration.__file__).with_name("calibration.txt").read_bytes()
    assert (
        hashlib.sha256(text).hexdigest() == "f4ce0a3900c7f8d1e113604901a59ec543e8617fa47c556e0332094f0429daa0"
    )


def test_cached_weights_of_an_older_format_are_removed(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model", "llama, grouped heads")
    cache = tmp_path / "int8"
    cache.mkdir()
    for rounding in ("pairs", "full"):
        (cache / f"key-{rounding}-v0.safetensors").touch()
    Int8Verifier.load(path, "small", "key", cache)
    assert len(list(cache.glob("*-v0.safetensors"))) == 1
    assert len(list(cache.glob("*.safetensors"))) == 2 and not list(cache.glob("*.partial"))


def _flip(name: str) -> Callable[[bytearray], None]:
    def damage(data: bytearray) -> None:
        length = int.from_bytes(data[:8], "little")
        begin, end = json.loads(data[8 : 8 + length])[name]["data_offsets"]
        data[8 + length + (begin + end) // 2] ^= 1

    return damage


def _swap_two_tensors(data: bytearray) -> None:
    for old, new in (
        (b'"0.output.weight"', b'"x.output.weight"'),
        (b'"1.output.weight"', b'"0.output.weight"'),
    ):
        data[:] = data.replace(old, new, 1)
    data[:] = data.replace(b'"x.output.weight"', b'"1.output.weight"', 1)


def _in_entry(name: str, old: bytes, new: bytes) -> Callable[[bytearray], None]:
    """Changes what the header says of a tensor."""

    def damage(data: bytearray) -> None:
        at = data.index(b'"%b":{' % name.encode())
        place = data.index(old, at)
        assert place < data.index(b"}", at) and len(old) == len(new)
        data[place : place + len(old)] = new

    return damage


def _another_shape(data: bytearray) -> None:
    data[data.index(b'"shape":[', data.index(b'"0.down.weight":')) + len(b'"shape":[')] ^= 1


@pytest.fixture(scope="module")
def made(models: Path) -> Path:
    """A file of cached weights."""
    load(models, "llama, grouped heads")
    cache = models / "made"
    Int8Verifier.load(models / "llama--grouped-heads", "small", "key", cache)
    [path] = cache.glob("*.safetensors")
    return path


DAMAGES: dict[str, Callable[[bytearray], None]] = {
    "a bit of a weight": _flip("1.down.weight"),
    "a bit of a scale": _flip("0.qkv.scale"),
    "a bit of the embedding, which is only mapped": _flip("embedding"),
    "a block of zeros": lambda data: data.__setitem__(slice(-3000, -2000), bytes(1000)),
    "the end missing": lambda data: data.__delitem__(slice(-100, None)),
    "nothing in it": lambda data: data.clear(),
    "more than was written": lambda data: data.extend(bytes(64)),
    "a header that is no JSON": lambda data: data.__setitem__(20, 0),
    "two tensors in each other's place": _swap_two_tensors,
    "a shape": _another_shape,
    "a weight's type": _in_entry("0.down.weight", b'"I8"', b'"U8"'),
    "a scale's type": _in_entry("0.down.scale", b'"F32"', b'"I32"'),
    "the embedding's type": _in_entry("embedding", b'"BF16"', b'"F16" '),
    "a type that there is not": _in_entry("0.down.weight", b'"I8"', b'"I9"'),
    "an offset": _in_entry("0.down.weight", b'"data_offsets":[', b'"data_offsetz":['),
    "the form that older versions wrote": lambda data: data.__setitem__(
        slice(None), data.replace(b"crc32", b"other", 1)
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights_are_made_again_and_said(
    damage: str, made: Path, tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = made.read_bytes()
    data = bytearray(whole)
    DAMAGES[damage](data)
    assert data != whole
    cache = tmp_path / "int8"
    cache.mkdir()
    (cache / made.name).write_bytes(data)
    verifier = Int8Verifier.load(models / "llama--grouped-heads", "small", "key", cache)
    said = capsys.readouterr().err
    assert str(cache / made.name) in said and "made again" in said
    assert is_sealed_and_whole(cache / made.name)
    fresh = load(models, "llama, grouped heads")
    assert torch.equal(*(v.verify(v.open_slot(), TEXT[:3]) for v in (verifier, fresh)))


def test_weights_that_are_replaced_while_they_are_read_stay_what_they_were(
    made: Path, tmp_path: Path
) -> None:
    from speculation.verifier.weights import WeightFile

    path = tmp_path / "weights.safetensors"
    path.write_bytes(made.read_bytes())
    file = WeightFile(path)
    before = file.read("0.qkv.weight")
    (tmp_path / "other").write_bytes(bytes(path.stat().st_size))
    (tmp_path / "other").replace(path)
    assert torch.equal(file.read("0.qkv.weight"), before) and file.map("embedding").abs().sum() > 0


def test_weights_are_on_the_disk_before_they_are_in_place(
    made: Path, tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut must not leave a file that has its name but not its content."""
    from speculation.verifier import weights

    steps = []
    monkeypatch.setattr(
        weights, "sync", lambda path: steps.append(("sync", list(tmp_path.glob("*.safetensors"))))
    )
    monkeypatch.setattr(weights, "sync_directory", lambda path: steps.append(("names", path)))
    Int8Verifier.load(models / "llama--grouped-heads", "small", "key", tmp_path)
    assert steps == [("sync", []), ("names", tmp_path)]
