"""The graphs engine, uncaptured on a CPU, against transformers' plain forward over the whole sequence."""

import copy
import random

import pytest
import torch
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

from speculation.verifier.base import OutOfMemoryError, VerifierError
from speculation.verifier.eager import EagerVerifier
from speculation.verifier.graphs import GraphsVerifier
from speculation.verifier.graphs_memory import RESERVE_BYTES, context_for, retry_once
from speculation.verifier.graphs_passes import ancestor_bits, depths
from speculation.verifier.model_bytes import bytes_read, weight_bytes
from speculation.verifier.nodes import ancestor_mask

VOCAB = 101
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 700,
}
SHAPES = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SMALL, num_key_value_heads=2, tie_word_embeddings=True)),
    "llama, as deepseek-coder": (LlamaForCausalLM, LlamaConfig(**SMALL, num_key_value_heads=6)),
    "starcoder2": (
        Starcoder2ForCausalLM,
        Starcoder2Config(**SMALL, num_key_value_heads=2, sliding_window=None),
    ),
    "granite": (
        GraniteForCausalLM,
        GraniteConfig(**SMALL, num_key_value_heads=3, attention_multiplier=0.3, logits_scaling=4.0),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small only lose by sharing a pass among threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def random_model(shape, dtype=torch.float64):
    model_class, config = SHAPES[shape]
    torch.manual_seed(1)
    return model_class(copy.deepcopy(config)).to(dtype).eval()


def tokens(count, seed=0):
    return random.Random(seed).choices(range(VOCAB), k=count)


@torch.inference_mode()
def plain(model, sequence):
    """Logits ``[len(sequence), vocab]`` of transformers' own forward with no cache."""
    return model(torch.tensor([sequence])).logits[0]


@pytest.fixture(scope="module", params=SHAPES)
def pair(request):
    model = random_model(request.param)
    return copy.deepcopy(model), GraphsVerifier(model)


@pytest.fixture(scope="module")
def qwen():
    model = random_model("qwen2")
    return copy.deepcopy(model), GraphsVerifier(model)


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("prefix", [1, 60, 255, 256, 300, 520])
def test_a_chain_gives_the_logits_of_the_plain_forward(pair, prefix):
    model, verifier = pair
    sequence = tokens(prefix + 64)
    expected = plain(model, sequence)
    slot = verifier.open_slot()
    verifier.prefill(slot, sequence[:prefix])
    for count in (1, 2, 3, 8, 13, 33, 64):
        logits = verifier.verify(slot, sequence[prefix : prefix + count])
        assert_same(logits, expected[prefix : prefix + count])
    assert verifier.length(slot) == prefix


def test_an_empty_slot_can_be_verified_on(pair):
    model, verifier = pair
    sequence = tokens(5)
    assert_same(verifier.verify(verifier.open_slot(), sequence), plain(model, sequence))


@pytest.mark.parametrize("seed", range(4))
def test_every_node_of_a_tree_gives_the_logits_of_its_own_chain(pair, seed):
    model, verifier = pair
    rng = random.Random(seed)
    prefix, nodes = tokens(70, seed), tokens(rng.choice([5, 30, 64]), seed + 1)
    parents = [rng.randrange(-1, node) for node in range(len(nodes))]
    slot = verifier.open_slot()
    verifier.prefill(slot, prefix)
    logits = verifier.verify(slot, nodes, parents)
    for node in range(len(nodes)):
        chain = path_to(node, parents)
        assert_same(logits[node], plain(model, prefix + [nodes[i] for i in chain])[-1])


def path_to(node, parents):
    path = []
    while node >= 0:
        path.insert(0, node)
        node = parents[node]
    return path


@pytest.mark.parametrize("seed", range(4))
def test_after_a_branch_is_kept_the_cache_is_that_of_its_tokens(pair, seed):
    model, verifier = pair
    rng = random.Random(seed)
    prefix, nodes, after = tokens(40, seed), tokens(20, seed + 1), tokens(9, seed + 2)
    parents = [rng.randrange(-1, node) for node in range(len(nodes))]
    kept = path_to(rng.randrange(20), parents)
    slot = verifier.open_slot()
    verifier.prefill(slot, prefix)
    verifier.verify(slot, nodes, parents)
    verifier.commit(slot, kept)
    assert verifier.length(slot) == 40 + len(kept)
    sequence = prefix + [nodes[i] for i in kept] + after
    assert_same(verifier.verify(slot, after), plain(model, sequence)[-9:])


@pytest.mark.parametrize("chunks", [[300], [128, 128, 44], [64, 200, 36], [1] * 20 + [280]])
def test_prefill_chunks_of_any_size_give_the_same_cache(qwen, chunks):
    model, verifier = qwen
    sequence = tokens(303)
    slot = verifier.open_slot()
    for size in chunks:
        done = verifier.length(slot)
        verifier.prefill(slot, sequence[done : done + size])
    assert_same(verifier.verify(slot, sequence[300:]), plain(model, sequence)[300:])


def test_rollback_forgets_and_goes_on_from_there(pair):
    model, verifier = pair
    sequence = tokens(90)
    slot = verifier.open_slot()
    verifier.prefill(slot, sequence)
    verifier.rollback(slot, 50)
    other = tokens(20, seed=9)
    assert_same(verifier.verify(slot, other), plain(model, sequence[:50] + other)[50:])
    verifier.rollback(slot, 0)
    assert_same(verifier.verify(slot, other), plain(model, other))


def test_slots_do_not_touch_each_other(qwen):
    model, verifier = qwen
    texts = [tokens(30 + 10 * seed, seed) for seed in range(4)]
    slots = [verifier.open_slot() for _ in texts]
    for position in range(0, 60, 15):  # in turns, so that each is parked and brought back
        for slot, text in zip(slots, texts, strict=True):
            verifier.prefill(slot, text[position : position + 15] or text[-1:])
    nodes = tokens(6, seed=8)
    for slot, text in zip(slots, texts, strict=True):
        held = (text[:60] + text[-1:] * 4)[: verifier.length(slot)]
        assert_same(verifier.verify(slot, nodes), plain(model, held + nodes)[-6:])


def test_a_copied_slot_goes_its_own_way(qwen):
    model, verifier = qwen
    sequence, here, there = tokens(80), tokens(5, seed=1), tokens(5, seed=2)
    first = verifier.open_slot()
    verifier.prefill(first, sequence)
    second = verifier.copy_slot(first, 60)
    third = verifier.copy_slot(second, 20)  # from a parked slot
    verifier.prefill(second, there)
    assert_same(verifier.verify(first, here), plain(model, sequence + here)[-5:])
    assert_same(verifier.verify(second, here), plain(model, sequence[:60] + there + here)[-5:])
    assert_same(verifier.verify(third, here), plain(model, sequence[:20] + here)[-5:])
    verifier.close_slot(second)
    assert_same(verifier.verify(third, there), plain(model, sequence[:20] + there)[-5:])


def test_a_pass_can_be_committed_after_another_slot_has_run(qwen):
    model, verifier = qwen
    first, second = verifier.open_slot(), verifier.open_slot()
    prefix, nodes = tokens(30), tokens(4, seed=1)
    verifier.prefill(first, prefix)
    verifier.verify(first, nodes, [-1, -1, 1, 2])
    verifier.prefill(second, tokens(50, seed=2))
    verifier.commit(first, [1, 2, 3])
    after = tokens(3, seed=3)
    assert_same(verifier.verify(first, after), plain(model, prefix + nodes[1:] + after)[-3:])


def test_the_two_best_tokens_are_those_of_the_logits(pair):
    _, verifier = pair
    slot = verifier.open_slot()
    verifier.prefill(slot, tokens(40))
    nodes, parents = tokens(7, seed=1), [-1, 0, 1, 1, 0, 4, -1]
    expected = verifier.verify(slot, nodes, parents).topk(2).indices
    assert torch.equal(verifier.verify_best(slot, nodes, parents), expected)


def test_with_one_shape_the_rows_of_a_pass_do_not_depend_on_each_other():
    verifier = GraphsVerifier(random_model("qwen2", torch.float32), query_buckets=[16], key_buckets=())
    slot = verifier.open_slot()
    sequence = tokens(130)
    verifier.prefill(slot, sequence[:100])
    together = verifier.verify(slot, sequence[100:116])
    for node in range(16):
        alone = verifier.verify(slot, sequence[100 + node : 101 + node])
        assert torch.equal(alone[0], together[node])
        verifier.commit(slot, [0])


def test_bfloat16_stays_close_to_float32():
    model = random_model("qwen2", torch.float32)
    exact = plain(model, tokens(60))
    verifier = GraphsVerifier(model.to(torch.bfloat16))
    slot = verifier.open_slot()
    verifier.prefill(slot, tokens(60)[:50])
    logits = verifier.verify(slot, tokens(60)[50:])
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, exact[50:], rtol=0, atol=0.05)


def wrong_uses():
    yield "no tokens", lambda v, slot: v.verify(slot, [])
    yield "too many nodes", lambda v, slot: v.verify(slot, [1] * 65)
    yield "an id outside the vocabulary", lambda v, slot: v.verify(slot, [VOCAB])
    yield "a negative id", lambda v, slot: v.prefill(slot, [-1])
    yield "a cycle", lambda v, slot: v.verify(slot, [1, 2], [1, 0])
    yield "its own parent", lambda v, slot: v.verify(slot, [1, 2], [-1, 1])
    yield "too few parents", lambda v, slot: v.verify(slot, [1, 2], [-1])
    yield "past the context", lambda v, slot: v.prefill(slot, [1] * 700)
    yield "rollback past the start", lambda v, slot: v.rollback(slot, -1)
    yield "rollback past the end", lambda v, slot: v.rollback(slot, 99)
    yield "a path through no pass", lambda v, slot: v.commit(slot, [5])
    yield "a copy of more than there is", lambda v, slot: v.copy_slot(slot, 99)
    yield "a slot that is not there", lambda v, slot: v.verify(10**6, [1])


@pytest.mark.parametrize(("use",), [pytest.param(use, id=name) for name, use in wrong_uses()])
def test_wrong_use_is_refused_and_leaves_the_cache_as_it_was(qwen, use):
    model, verifier = qwen
    slot = verifier.open_slot()
    prefix, nodes = tokens(50), tokens(3, seed=1)
    verifier.prefill(slot, prefix)
    verifier.verify(slot, nodes)
    with pytest.raises(VerifierError):
        use(verifier, slot)
    verifier.commit(slot, [0, 1])  # the pass before is still provisional
    after = tokens(4, seed=2)
    assert_same(verifier.verify(slot, after), plain(model, prefix + nodes[:2] + after)[-4:])


def test_the_context_fills_up_to_the_last_position(qwen):
    model, verifier = qwen
    sequence = tokens(700)
    slot = verifier.open_slot()
    verifier.prefill(slot, sequence[:699])
    assert_same(verifier.verify(slot, sequence[699:]), plain(model, sequence)[-1:])
    verifier.commit(slot, [0])
    with pytest.raises(VerifierError, match="do not fit"):
        verifier.verify(slot, [1])


def test_a_sliding_window_ends_the_context():
    config = MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=100)
    verifier = GraphsVerifier(MistralForCausalLM(config).eval())
    assert verifier.capabilities.max_context == 100


def test_the_context_can_be_limited(qwen):
    _, verifier = qwen
    limited = GraphsVerifier(random_model("qwen2"), max_context=64)
    assert limited.capabilities.max_context == 64 < verifier.capabilities.max_context
    limited.limit_context(32)
    with pytest.raises(VerifierError, match="do not fit"):
        limited.prefill(limited.open_slot(), [1] * 33)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "dynamic rotary"),
        (
            {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
            "linear_attention layers",
        ),
    ],
)
def test_an_architecture_that_cannot_be_captured_is_named(change, named):
    model = random_model("llama, as deepseek-coder")
    for name, value in change.items():
        setattr(model.config, name, value)
    with pytest.raises(VerifierError, match=named):
        GraphsVerifier(model)


def test_an_attention_that_asks_for_more_is_refused():
    verifier = GraphsVerifier(random_model("qwen2"))
    for layer in verifier._model.model.layers:
        forward = layer.self_attn.forward
        layer.self_attn.forward = lambda *a, _forward=forward, **k: _forward(*a, softcap=30.0, **k)
    with pytest.raises(VerifierError, match="softcap"):
        verifier.verify(verifier.open_slot(), [1])


def test_ancestors_as_bits_say_what_the_mask_says():
    rng = random.Random(0)
    for count in (1, 7, 64):
        for parents in (None, [rng.randrange(-1, node) for node in range(count)]):
            mask, depth = ancestor_mask(count, parents)
            bits = ancestor_bits(parents, count)
            assert [[bool(b >> j & 1) for j in range(count)] for b in bits] == mask.tolist()
            assert depths(parents, count) == depth.tolist()


def test_bytes_count_a_tied_head_once_and_leave_out_a_table_that_is_only_looked_up():
    tied, untied = random_model("qwen2"), random_model("llama, as deepseek-coder")
    assert weight_bytes(tied) == sum(p.numel() * 8 for p in tied.parameters()) == bytes_read(tied)
    assert bytes_read(untied) == weight_bytes(untied) - VOCAB * 48 * 8
    for engine in (GraphsVerifier, EagerVerifier):
        assert engine(tied, "m").capabilities.unread_bytes == 0
        assert engine(untied, "m").capabilities.unread_bytes == VOCAB * 48 * 8


def test_int8_weights_stay_close_and_halve_what_a_pass_reads():
    pytest.importorskip("torchao", reason="weight-only quantisation is in the optional extra gpu")
    from speculation.verifier.graphs_model import quantise

    model = random_model("llama, as deepseek-coder", torch.bfloat16)
    before, exact = bytes_read(model), plain(model, tokens(60))
    quantise(model, "int8")
    verifier = GraphsVerifier(model)
    assert bytes_read(model) < 0.75 * before
    slot = verifier.open_slot()
    verifier.prefill(slot, tokens(60)[:50])
    torch.testing.assert_close(verifier.verify(slot, tokens(60)[50:]), exact[50:].float(), rtol=0, atol=0.05)


def test_a_saved_model_is_loaded_in_the_precision_asked_for(tmp_path):
    model = random_model("qwen2", torch.float32)
    model.save_pretrained(tmp_path)
    verifier = GraphsVerifier.load(str(tmp_path), "small", "float64", "cpu", max_context=128)
    assert (verifier.capabilities.model, verifier.capabilities.dtype) == ("small", "float64")
    expected = plain(model.double(), tokens(20))
    assert_same(verifier.verify(verifier.open_slot(), tokens(20)), expected)
    with pytest.raises(VerifierError, match="has no int3"):
        GraphsVerifier.load(str(tmp_path), "small", "int3", "cpu")


def test_the_context_follows_the_free_memory():
    assert context_for(None, 1000, wanted=8192) == 8192
    assert context_for(RESERVE_BYTES + 10**9, 1000, wanted=8192) == 8192
    assert context_for(RESERVE_BYTES + 4 * 10**6, 1000, wanted=8192) == 2000
    with pytest.raises(OutOfMemoryError, match="smaller model"):
        context_for(RESERVE_BYTES, 1000, wanted=8192)


def test_out_of_memory_is_tried_once_more_and_then_said():
    log = []

    def fails(times):
        def action():
            log.append("try")
            if log.count("try") <= times:
                raise torch.OutOfMemoryError("no room")
            return "done"

        return action

    assert retry_once(fails(1), free=lambda: log.append("free")) == "done"
    assert log == ["try", "free", "try"]
    log.clear()
    with pytest.raises(OutOfMemoryError, match="after freeing"):
        retry_once(fails(2), free=lambda: log.append("free"))
    assert log == ["try", "free", "try"]


def test_when_the_passes_do_not_fit_the_context_is_halved(monkeypatch):
    capture = GraphsVerifier._build
    contexts = []

    def build(self):
        contexts.append(self.capabilities.max_context)
        if self.capabilities.max_context > 400:
            raise torch.OutOfMemoryError("no room")
        capture(self)

    monkeypatch.setattr(GraphsVerifier, "_build", build)
    verifier = GraphsVerifier(random_model("qwen2"))
    assert contexts == [700, 350]
    verifier.prefill(verifier.open_slot(), [1] * 350)


def test_a_pass_without_memory_raises_and_leaves_the_cache_as_it_was(qwen, monkeypatch):
    model, verifier = qwen
    slot = verifier.open_slot()
    prefix, nodes = tokens(50), tokens(3, seed=1)
    verifier.prefill(slot, prefix)

    def no_room(*_):
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(verifier._passes, "run", no_room)
        with pytest.raises(OutOfMemoryError):
            verifier.verify(slot, nodes)
        with pytest.raises(OutOfMemoryError):
            verifier.prefill(slot, nodes)
    assert verifier.length(slot) == 50
    assert_same(verifier.verify(slot, nodes), plain(model, prefix + nodes)[-3:])
