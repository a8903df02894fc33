"""The source of a function that prepares image files for an exported network, as `trainer predict` does."""

from exporting import image_rule
from exporting.checkpoint import Checkpoint
from exporting.model import Extents

TURN = '''    if image.format in ("JPEG", "TIFF"):
        image = ImageOps.exif_transpose(image)
'''
FUNCTION = '''

def prepare(path: str) -> Tensor:
    """Reads an image file and prepares it for the network as Tutti does: 1 x {image}. Needs Pillow and NumPy."""
    import numpy
    from PIL import Image, ImageOps
    image = Image.open(path)
{turn}    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((numpy.asarray(image).astype(numpy.uint32) / 257 + 0.5).astype(numpy.uint8))
    planes = image.convert("{mode}").split()
    if image.size != ({width}, {height}):  # the short side becomes {side}, unrounded; then the centre is cut
        size = [extent * {side} // min(image.size) for extent in image.size]
        left, top = int((size[0] - {width}) / 2), int((size[1] - {height}) / 2)
        planes = [plane.convert("F").resize(size, Image.Resampling.BILINEAR).crop(
            (left, top, left + {width}, top + {height})) for plane in planes]
    pixels = torch.stack([torch.from_numpy(numpy.array(plane, numpy.float32)) for plane in planes]) / 255
    return {values}[None]
'''


def source_of(checkpoint: Checkpoint, image: Extents, normalizes: bool) -> str:
    """Empty if the image's size is open, or its channels are no colours."""
    channels, height, width = image
    mode = {1: "L", 3: "RGB"}.get(channels)
    if mode is None or not (isinstance(height, int) and isinstance(width, int)):
        return ""
    return FUNCTION.format(image=" x ".join(map(str, image)), mode=mode, height=height, width=width,
                           turn=TURN if image_rule.is_turned(checkpoint) else "",
                           side=image_rule.short_side(checkpoint, height),
                           values="((pixels - MEAN) / DEVIATION)" if normalizes else "pixels")
