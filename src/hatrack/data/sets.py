"""The named image sets: shape, classes, the papers' normalisation, and where the hub keeps them."""

from __future__ import annotations

from dataclasses import dataclass

Figures = tuple[float, ...]

IMAGENET_MEAN: Figures = (0.485, 0.456, 0.406)
IMAGENET_STD: Figures = (0.229, 0.224, 0.225)
CIFAR_MEAN: Figures = (125.3 / 255, 123.0 / 255, 113.9 / 255)
CIFAR_STD: Figures = (63.0 / 255, 62.1 / 255, 66.7 / 255)


@dataclass(frozen=True)
class Hub:
    """A data set on the Hugging Face hub: its id, the folder of its Parquet files, its labelled test part.

    A `gated` one is given only to those who have an account and agree to its terms.
    """

    repo: str
    folder: str
    test: str = "test"
    gated: bool = False

    @property
    def patterns(self) -> tuple[str, str]:
        """The files to fetch, and no others (some repositories hold far more)."""
        return f"{self.folder}/train-*", f"{self.folder}/{self.test}-*"

    @property
    def pattern(self) -> str:
        """The same as one pattern: versions of the `hf` command differ in how they take several."""
        return f"{self.folder}/{'t' if self.test == 'test' else '[tv]'}*"


@dataclass(frozen=True)
class ImageSet:
    """One named set. `shape` is (channels, height, width); mean and std are of pixels in [0, 1].

    `padded` holds mean and std after zero-padding 28×28 pictures to 32×32. `resize` says whether the source
    may hold other sizes, which are then scaled (bicubic); a set without it takes its own shape alone.
    """

    name: str
    classes: int
    shape: tuple[int, int, int]
    mean: Figures
    std: Figures
    hub: Hub | None = None
    padded: tuple[Figures, Figures] | None = None
    resize: bool = False


_GREY, _COLOUR = (1, 28, 28), (3, 32, 32)

SETS: dict[str, ImageSet] = {
    s.name: s
    for s in [
        ImageSet("cifar10", 10, _COLOUR, CIFAR_MEAN, CIFAR_STD, Hub("uoft-cs/cifar10", "plain_text")),
        ImageSet("cifar100", 100, _COLOUR, CIFAR_MEAN, CIFAR_STD, Hub("uoft-cs/cifar100", "cifar100")),
        ImageSet("mnist", 10, _GREY, (0.1307,), (0.3081,), Hub("ylecun/mnist", "mnist"), padded=((0.1,), (0.2752,))),
        ImageSet(
            "svhn",
            10,
            _COLOUR,
            (0.4377, 0.4438, 0.4728),
            (0.198, 0.201, 0.197),
            Hub("ufldl-stanford/svhn", "cropped_digits"),
        ),
        ImageSet(
            "fashion_mnist",
            10,
            _GREY,
            (0.2860,),
            (0.3530,),
            Hub("zalando-datasets/fashion_mnist", "fashion_mnist"),
            padded=((0.2190,), (0.3318,)),
        ),
        ImageSet(
            "gtsrb",
            43,
            _COLOUR,
            (0.3398, 0.3117, 0.3210),
            (0.2755, 0.2647, 0.2712),
            Hub("tanganke/gtsrb", "data"),
            resize=True,
        ),
        ImageSet("facescrub", 100, _COLOUR, (0.5163, 0.5569, 0.4695), (0.2307, 0.2272, 0.2479), resize=True),
        ImageSet(
            "notmnist",
            10,
            _GREY,
            (0.4254,),
            (0.4501,),
            Hub("anubhavmaity/notMNIST", "data"),
            padded=((0.4254,), (0.4501,)),
        ),
        ImageSet(
            "tiny_imagenet32",
            200,
            _COLOUR,
            IMAGENET_MEAN,
            IMAGENET_STD,
            Hub("zh-plus/tiny-imagenet", "data", test="valid"),
            resize=True,
        ),
        ImageSet(
            "imagenet32",
            1000,
            _COLOUR,
            IMAGENET_MEAN,
            IMAGENET_STD,
            Hub("benjamin-paine/imagenet-1k-32x32", "data", test="validation", gated=True),
        ),
        # Not in the papers: mean and std of the training pictures that docs/data.md describes.
        ImageSet("emnist_letters", 26, _GREY, (0.1721,), (0.3309,), padded=((0.1317,), (0.2986,))),
        ImageSet("yale_faces", 38, (1, 32, 32), (0.2724,), (0.2450,)),
        ImageSet("smiles", 2, (1, 32, 32), (0.5020,), (0.1752,)),
    ]
}
