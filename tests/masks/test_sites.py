"""Sites of the zoo's networks: who writes them, who reads them, made by hand from the architecture."""

from __future__ import annotations

import pytest

from zoo import unit_map

# site name: (units, writers, readers)
EXPECTED: dict[str, dict[str, tuple[int, str, str]]] = {
    "mlp-gelu": {"1": (9, "1", "3"), "3": (7, "3", "5"), "5": (6, "5", "heads")},
    "alexnet": {"0": (6, "0", "4"), "4": (8, "4", "8"), "8": (10, "8", "10"), "10": (8, "10", "heads")},
    "vgg": {"0": (6, "0", "4"), "4": (6, "4", "8"), "8": (8, "8", "13"), "13": (8, "13", "heads")},
    "dense": {
        "stem": (4, "stem", "grow.0.2 grow.1.2 transition"),
        "grow.0.2": (3, "grow.0.2", "grow.1.2 transition"),
        "grow.1.2": (3, "grow.1.2", "transition"),
        "transition": (5, "transition", "again heads"),
        "again": (3, "again", "heads"),
    },
    "mobile": {
        "stem.0": (4, "stem.0 project", "expand grouped"),
        "expand": (8, "expand", "depthwise"),
        "depthwise": (8, "depthwise squeeze.up", "squeeze.down project"),
        "squeeze.down": (3, "squeeze.down", "squeeze.up"),
        "grouped": (6, "grouped", "heads"),
    },
    "unet": {
        "a": (4, "a", "b e"),
        "b": (5, "b", "c d"),
        "c": (6, "c", "up"),
        "up": (4, "up", "d"),
        "d": (5, "d", "e"),
        "e": (4, "e", "heads"),
    },
    "conv1d": {"0": (5, "0", "3"), "3": (6, "3", "7"), "7": (6, "7", "heads")},
    "by-hand": {"0": (8, "0", "2 3.qkv"), "3.qkv": (16, "3.qkv", "3 3.out"), "3.out": (8, "3.out", "heads")},
    "vit": {
        "patches": (
            8,
            "patches token blocks.0.attention.out_proj blocks.0.fc2 blocks.1.attention.out_proj blocks.1.fc2",
            "blocks.0.norm1 blocks.0.attention blocks.0.norm2 blocks.0.fc1 "
            "blocks.1.norm1 blocks.1.attention blocks.1.norm2 blocks.1.fc1 norm heads",
        ),
        "blocks.0.attention": (16, "blocks.0.attention", "blocks.0.attention blocks.0.attention.out_proj"),
        "blocks.0.fc1": (12, "blocks.0.fc1", "blocks.0.fc2"),
        "blocks.1.attention": (16, "blocks.1.attention", "blocks.1.attention blocks.1.attention.out_proj"),
        "blocks.1.fc1": (12, "blocks.1.fc1", "blocks.1.fc2"),
    },
    "llama": {
        "embed": (8, "embed o down", "norm1 q k v norm2 gate up norm3 heads"),
        "q": (4, "q k", "Llama"),  # queries of two heads share each key head
        "v": (4, "v", "o"),
        "gate": (10, "gate up", "down"),
    },
    "tied-module": {
        "layer": (8, "layer", "layer"),
        "layer#2": (8, "layer", "layer"),
        "layer#3": (8, "layer", "last"),
        "last": (5, "last", "heads"),
    },
    "tied-parameter": {
        "embed": (6, "embed", "hidden"),
        "hidden": (6, "hidden", "out"),
        "out": (11, "out", "heads"),
    },
    "lstm-deep": {
        "embed": (5, "embed", "rnn"),
        "rnn": (4, "rnn", "rnn"),
        "rnn#2": (4, "rnn", "rnn"),
        "rnn#3": (4, "rnn", "rnn out"),
        "rnn#4": (4, "rnn", "rnn out"),
        "out": (6, "out", "heads"),
    },
    "bare": {
        "kernel": (3, "kernel", "a"),
        "a": (7, "a", "b"),
        "b": (8, "b", "c"),
        "c": (6, "c", "d"),
        "d": (5, "d", "e"),
        "e": (4, "e", "heads"),
    },
    "in-place": {"a": (5, "a", "c"), "b": (4, "b", "c"), "c": (6, "c", "heads")},
    "learned-input": {"scale": (3, "scale", "conv"), "conv": (4, "conv", "heads")},
    "spectrum": {"b": (6, "b", "heads")},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sites(name: str) -> None:
    units = unit_map(name)
    found = {s.name: (s.size, " ".join(s.writers), " ".join(s.readers)) for s in units.sites}
    assert found == EXPECTED[name]
    ends = [0]
    for site in units.sites:
        assert site.start == ends[-1]
        ends.append(site.start + site.size)
    assert ends[-1] == units.size


@pytest.mark.parametrize(("net", "inner", "widen"), [("resnet18", 1, 1), ("resnet50", 2, 4)])
def test_resnets_have_one_site_a_residual_stream_and_one_a_convolution_inside(net: str, inner: int, widen: int) -> None:
    depths = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}[net]
    units = unit_map(net)
    width = units.sites[0].size
    streams = {s.name: s for s in units.sites if len(s.writers) > 1}
    assert len(units.sites) - len(streams) == inner * sum(depths) + (net == "resnet50")  # and the stem
    for stage, depth in enumerate(depths):
        last = f"conv{inner + 1}"
        writers = [f"stages.{stage}.{block}.{last}" for block in range(depth)]
        if net == "resnet18" and stage == 0:
            expected = ["conv", *writers]  # identity shortcuts only: the stem writes the first stream
        else:
            expected = [writers[0], f"stages.{stage}.0.shortcut.0", *writers[1:]]
        site = streams[expected[0]]
        assert list(site.writers) == expected
        assert site.size == width * 2**stage * widen
        readers = {f"stages.{stage}.{block}.conv1" for block in range(1, depth)}
        after = {f"stages.{stage + 1}.0.{part}" for part in ("conv1", "shortcut.0")} if stage < 3 else {"heads"}
        stem = {"stages.0.0.conv1"} if "conv" in expected else set()
        assert set(site.readers) == readers | after | stem
