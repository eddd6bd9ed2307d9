"""Classify images with networks that Towers trained: libtowers by ctypes."""
from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import threading
import weakref
from typing import Any, NamedTuple, Sequence

import numpy

from .errors import LibraryError, NotInstalled


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_int), ("batch", ctypes.c_int), ("embeddings", ctypes.c_int)]


class _Image(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t), ("height", ctypes.c_int), ("width", ctypes.c_int),
                ("channels", ctypes.c_int)]


def _library_file():
    """TOWERS_LIBRARY, else the library of this package, else that of the system."""
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "libtowers.so.0")
    return (os.environ.get("TOWERS_LIBRARY") or (packaged if os.path.exists(packaged) else None) or ctypes.util.find_library("towers")
            or "libtowers.so.0")


@functools.lru_cache(maxsize=None)
def _library():
    try:
        library = ctypes.CDLL(_library_file())
    except OSError as why:
        raise NotInstalled(f"cannot load libtowers: {why}. Install a wheel of Towers that contains it (scripts/wheel.sh builds one), or "
                           "the library (cmake --install build; ldconfig), or name its file: TOWERS_LIBRARY=build/libtowers.so.0") from why
    handle, text, number, floats = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
    error = ctypes.POINTER(_Error)
    for name, result, arguments in [
            ("version", text, []), ("status_name", text, [number]), ("close", None, [handle]), ("model", text, [handle]),
            ("side", number, [handle]), ("class_count", number, [handle]), ("class_name", text, [handle, number]),
            ("several_classes", number, [handle]), ("turns_upright", number, [handle]), ("embedding_size", number, [handle]),
            ("open", number, [text, ctypes.POINTER(_Options), ctypes.POINTER(handle), error]),
            ("classify", number, [handle, ctypes.POINTER(_Image), number, floats, floats, error])]:
        function = getattr(library, "towers_" + name)
        function.restype, function.argtypes = result, arguments
    return library


def version() -> str:
    """Of libtowers."""
    return _library().towers_version().decode()


def _error(error, results=None):
    return LibraryError(error.text.decode(errors="replace"), _library().towers_status_name(error.status).decode(), results)


class Prediction(NamedTuple):
    """The classes of an image: the likeliest one, and the probabilities of all."""

    name: str  # of the likeliest class
    probability: float
    names: list[str]  # of all classes
    probabilities: numpy.ndarray  # float32, of all classes in their order

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The likeliest classes as (name, probability), the likeliest first."""
        order = numpy.argsort(-self.probabilities, kind="stable")[:count]
        return [(self.names[k], float(self.probabilities[k])) for k in order]

    def above(self, threshold: float = 0.5) -> list[tuple[str, float]]:
        """Those of at least this probability, for networks that give an image any number of classes."""
        return [(name, p) for name, p in self.top(len(self.names)) if p > threshold]


def _is_picture(image):
    """Whether it is an image of Pillow, which need not be installed."""
    return hasattr(image, "getexif") and hasattr(image, "convert")


def _high_bytes(values, mode):
    """Of 16 bits, as which mode I, of 32 bits, is taken where its numbers fit no other size."""
    if mode == "I" and (values.min() < 0 or 0 < values.max() < 256 or values.max() > 65535):
        raise TypeError(f"an image of Pillow in mode I with numbers from {values.min()} to {values.max()} does not say which of them is "
                        "white, as those of 16 bits do; give an array of uint8 in which 255 is")
    return (values >> 8).astype(numpy.uint8)


def _pixels_of_picture(image, upright):
    """The pixels that the library would read from the file of the image: RGB, or gray; 16 bits by their high byte."""
    if upright:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise TypeError("an image of Pillow in mode F does not say which of its numbers is white; give an array of uint8 in which 255 is")
    if image.mode.startswith("I"):
        return _high_bytes(numpy.asarray(image), image.mode)
    return numpy.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))


def _pixels(image):
    image = numpy.ascontiguousarray(image)
    shape = (*image.shape, 1)[:3]
    if image.dtype != numpy.uint8 or image.ndim not in (2, 3) or shape[2] not in (1, 3) or 0 in shape:
        raise TypeError("an array of pixels must be uint8, [height][width] or [height][width][1 or 3 channels], none of "
                        f"them 0, not {image.dtype} of shape {list(image.shape)}")
    return image, shape


class Network:
    """An open network: a run, or a file of weights. It may be used by several threads. Its threads and memory are given back by
    close(), at the end of a with statement, or when nothing refers to it any more."""

    def __init__(self, path: str | bytes | os.PathLike[Any], threads: int = 0, batch: int = 1, embeddings: bool = False) -> None:
        towers, error, self._handle, self._used = _library(), _Error(), ctypes.c_void_p(), threading.Lock()
        name = os.fsencode(path)
        if b"\0" in name:
            raise ValueError(f"no path of a file holds a null character, as {path!r} does")
        options = _Options(ctypes.sizeof(_Options), threads, batch, bool(embeddings))
        if towers.towers_open(name, options, ctypes.byref(self._handle), ctypes.byref(error)):
            raise _error(error)
        self._close = weakref.finalize(self, towers.towers_close, self._handle)
        self.model, self.side = towers.towers_model(self._handle).decode(), towers.towers_side(self._handle)
        self.class_names = [towers.towers_class_name(self._handle, k).decode() or str(k)
                            for k in range(towers.towers_class_count(self._handle))]
        self.several_classes = bool(towers.towers_several_classes(self._handle))
        self.turns_upright = bool(towers.towers_turns_upright(self._handle))
        self.embedding_size = towers.towers_embedding_size(self._handle)

    def _take(self, at, image):
        """Fills an _Image; what it points to is returned, and kept by the caller."""
        if _is_picture(image):
            image = _pixels_of_picture(image, self.turns_upright)
        if isinstance(image, (str, os.PathLike)):
            with open(image, "rb") as file:
                image = file.read()
        if isinstance(image, numpy.ndarray):
            image, (at.height, at.width, at.channels) = _pixels(image)
        elif isinstance(image, (bytes, bytearray, memoryview)):
            image = numpy.frombuffer(image, numpy.uint8)
        else:
            raise TypeError("an image is the path of a file, the bytes of one, an image of Pillow or an array of pixels, "
                            f"not {type(image).__name__}")
        at.bytes, at.size = image.ctypes.data, image.size
        return image

    def classify(self, images: Sequence[Any] | numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray | None]:
        """The probabilities of a list of images as float32 [images][classes]; and embeddings [images][embedding_size], or None."""
        if isinstance(images, numpy.ndarray) and images.ndim != 4:
            raise TypeError("an array of images must be [images][height][width][channels]; for one image give [image]")
        list_ = (_Image * len(images))()
        kept = [self._take(at, image) for at, image in zip(list_, images)]
        probabilities = numpy.empty((len(images), len(self.class_names)), numpy.float32)
        embeddings = numpy.empty((len(images), self.embedding_size), numpy.float32) if self.embedding_size else None
        error = _Error()
        with self._used:
            if not self._close.alive:
                raise ValueError("the network is closed")
            failed = _library().towers_classify(self._handle, list_, len(images), probabilities.ctypes.data,
                                                None if embeddings is None else embeddings.ctypes.data, ctypes.byref(error))
        del kept
        if failed:
            raise _error(error, (probabilities, embeddings))
        return probabilities, embeddings

    def predict(self, images: Any) -> Any:
        """The Prediction of an image, or a list of those of a list of images. An image is the path of a file, the bytes of one, an
        image of Pillow, or an array of uint8, [height][width] or [height][width][3]. Files are turned upright, cropped and scaled as
        the weights say, arrays cropped and scaled."""
        one = not isinstance(images, (list, tuple)) and not (isinstance(images, numpy.ndarray) and images.ndim == 4)
        found = []
        for row in self.classify([images] if one else images)[0]:
            best = int(row.argmax())
            found.append(Prediction(self.class_names[best], float(row[best]), self.class_names, row))
        return found[0] if one else found

    def close(self) -> None:
        """Waits for a classify of another thread."""
        with self._used:
            self._close()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()
