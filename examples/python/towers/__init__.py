"""Classify images with networks that Towers trained: libtowers by ctypes."""
import ctypes
import ctypes.util
import os
import threading
import weakref

import numpy

__all__ = ["Network", "TowersError", "version"]


class _Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class _Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_int), ("batch", ctypes.c_int), ("embeddings", ctypes.c_int)]


class _Image(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("size", ctypes.c_size_t), ("height", ctypes.c_int), ("width", ctypes.c_int),
                ("channels", ctypes.c_int)]


def _library():
    name = os.environ.get("TOWERS_LIBRARY") or ctypes.util.find_library("towers") or "libtowers.so.0"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise OSError(f"cannot load libtowers: {error}. Install it (cmake --install build; ldconfig), or name its file: "
                      "TOWERS_LIBRARY=build/libtowers.so.0") from error
    handle, text, number, floats = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
    error = ctypes.POINTER(_Error)
    for name, result, arguments in [
            ("version", text, []), ("status_name", text, [number]), ("close", None, [handle]), ("model", text, [handle]),
            ("side", number, [handle]), ("class_count", number, [handle]), ("class_name", text, [handle, number]),
            ("several_classes", number, [handle]), ("embedding_size", number, [handle]),
            ("open", number, [text, ctypes.POINTER(_Options), ctypes.POINTER(handle), error]),
            ("classify", number, [handle, ctypes.POINTER(_Image), number, floats, floats, error])]:
        function = getattr(library, "towers_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_towers = _library()


def version():
    return _towers.towers_version().decode()


class TowersError(Exception):
    """`name`: as in towers.h, for example TOWERS_FORMAT; `results`: of classify, with rows of NaN for damaged images, else None."""

    def __init__(self, error, results=None):
        super().__init__(error.text.decode(errors="replace"))
        self.name, self.results = _towers.towers_status_name(error.status).decode(), results


class Network:
    """An open network. It may be used by several threads. Its threads and memory are given back by close(), at the end of a with
    statement, or when nothing refers to it any more."""

    def __init__(self, path, threads=0, batch=1, embeddings=False):
        name, error, self._handle, self._used = os.fsencode(path), _Error(), ctypes.c_void_p(), threading.Lock()
        if b"\0" in name:
            raise ValueError(f"no path of a file holds a null character, as {path!r} does")
        options = _Options(ctypes.sizeof(_Options), threads, batch, bool(embeddings))
        if _towers.towers_open(name, options, ctypes.byref(self._handle), ctypes.byref(error)):
            raise TowersError(error)
        self._close = weakref.finalize(self, _towers.towers_close, self._handle)
        self.model, self.side = _towers.towers_model(self._handle).decode(), _towers.towers_side(self._handle)
        self.class_names = [_towers.towers_class_name(self._handle, k).decode()
                            for k in range(_towers.towers_class_count(self._handle))]
        self.several_classes = bool(_towers.towers_several_classes(self._handle))
        self.embedding_size = _towers.towers_embedding_size(self._handle)

    def classify(self, images):
        """The probabilities of a list of images as float32 [images][classes]; and embeddings [images][embedding_size], or None."""
        if isinstance(images, numpy.ndarray) and images.ndim != 4:
            raise TypeError("an array of images must be [images][height][width][channels]; for one image give [image]")
        kept, list_ = [], (_Image * len(images))()
        for at, image in zip(list_, images):
            if isinstance(image, numpy.ndarray):
                image = numpy.ascontiguousarray(image)
                shape = (*image.shape, 1)[:3]
                if image.dtype != numpy.uint8 or image.ndim not in (2, 3) or shape[2] not in (1, 3) or 0 in shape:
                    raise TypeError("an array of pixels must be uint8, [height][width] or [height][width][1 or 3 channels], none of "
                                    f"them 0, not {image.dtype} of shape {list(image.shape)}")
                at.height, at.width, at.channels = shape
            elif isinstance(image, (bytes, bytearray, memoryview)):
                image = numpy.frombuffer(image, numpy.uint8)
            else:
                raise TypeError(f"an image is an array of pixels or the bytes of a file, open(path, 'rb').read(), not {type(image).__name__}")
            at.bytes, at.size = image.ctypes.data, image.size
            kept.append(image)
        probabilities = numpy.empty((len(images), len(self.class_names)), numpy.float32)
        embeddings = numpy.empty((len(images), self.embedding_size), numpy.float32) if self.embedding_size else None
        error = _Error()
        with self._used:
            if not self._close.alive:
                raise ValueError("the network is closed")
            if _towers.towers_classify(self._handle, list_, len(images), probabilities.ctypes.data,
                                       embeddings.ctypes.data if self.embedding_size else None, ctypes.byref(error)):
                raise TowersError(error, (probabilities, embeddings))
        return probabilities, embeddings

    def close(self):
        """Waits for a classify of another thread."""
        with self._used:
            self._close()

    def __enter__(self):
        return self

    def __exit__(self, *about):
        self.close()
