"""The language model of the examples, at a tiny size, against loops; its weights are not needed."""

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


def block_in_loops(x):
    """One position and one head after the other."""
    x = x.astype(np.float64)
    inputs = [normalise(row, BLOCK["attn_norm"]) for row in x]
    attended = np.zeros_like(x)
    for head in range(HEADS.queries):
        own = slice(head * SIZE, (head + 1) * SIZE)
        shared = head * HEADS.keys // HEADS.queries
        key = slice(shared * SIZE, (shared + 1) * SIZE)
        for t in range(LENGTH):
            q = rotate((inputs[t] @ BLOCK["attn_q"])[own], t)
            ks = [rotate((inputs[s] @ BLOCK["attn_k"])[key], s) for s in range(t + 1)]
            vs = [(inputs[s] @ BLOCK["attn_v"])[key] for s in range(t + 1)]
            weights = np.exp([q @ k / np.sqrt(SIZE) for k in ks])
            attended[t, own] = weights / weights.sum() @ np.array(vs)
    x = x + attended @ BLOCK["attn_output"]
    for t in range(LENGTH):
        row = normalise(x[t], BLOCK["ffn_norm"])
        gate = row @ BLOCK["ffn_gate"]
        up = row @ BLOCK["ffn_up"]
        x[t] += (gate / (1 + np.exp(-gate)) * up) @ BLOCK["ffn_down"]
    return x


def test_a_block_is_that_of_loops():
    found = smollm2.apply_block(BLOCK, jnp.asarray(X), HEADS)
    expected = [block_in_loops(sequence) for sequence in X]
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
