"""The packages of the [export] extra, imported when first needed."""

from types import ModuleType

from fedfeast.errors import InvalidInput

REMEDY = "pip install 'fedfeast[export]'"


def import_onnx() -> ModuleType:
    """Return onnx, with the modules we use of it."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise InvalidInput(f"writing ONNX files needs the onnx package: {REMEDY}.") from error
    return onnx


def import_onnxruntime() -> ModuleType:
    """Return onnxruntime."""
    try:
        import onnxruntime
    except ImportError as error:
        raise InvalidInput(f"running ONNX files needs the onnxruntime package: {REMEDY}.") from error
    module: ModuleType = onnxruntime
    return module
