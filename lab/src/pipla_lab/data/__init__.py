"""Data sets of the experiments: handwritten digits, vehicles, and blurred images."""

from pipla_lab.data.classification import Classification, Images, digits, vehicles
from pipla_lab.data.image_deblurring import Deblurring, deblurring
from pipla_lab.data.images import find_image

__all__ = [
    "Classification",
    "Deblurring",
    "Images",
    "deblurring",
    "digits",
    "find_image",
    "vehicles",
]
