#!/usr/bin/env python3
"""PyTorch's side of a comparison of input: times a DataLoader over a folder of photographs and prints one JSON object.

torchvision's v2 transforms: RandomResizedCrop, flip, float, normalize. Files are decoded by Pillow or by torchvision's
decode_jpeg. Both resize bytes with antialiasing. Batches count once the workers run; the seconds are those between the
first and the last batch.
"""

import argparse
import json
import pathlib
import time

import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


class Photographs(torch.utils.data.Dataset):
    def __init__(self, folder: str, size: int, decoder: str):
        self.files = sorted(str(path) for path in pathlib.Path(folder).glob("*/*.jpg"))
        self.labels = {name: i for i, name in enumerate(sorted({pathlib.Path(f).parent.name for f in self.files}))}
        self.decoder = decoder
        first = [] if decoder == "tensor" else [v2.PILToTensor()]
        crop = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
        last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
        self.transform = v2.Compose([*crop, *first, *last])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int):
        path = self.files[index]
        if self.decoder == "tensor":
            image = torchvision.io.decode_jpeg(torchvision.io.read_file(path), mode=torchvision.io.ImageReadMode.RGB)
        else:
            with Image.open(path) as file:
                image = file.convert("RGB")
        return self.transform(image), self.labels[pathlib.Path(path).parent.name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--decoder", choices=("pillow", "tensor"), default="pillow")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Photographs(options.folder, options.size, options.decoder)
    loader = torch.utils.data.DataLoader(data, options.batch, shuffle=True, num_workers=options.workers,
                                         drop_last=True, persistent_workers=True)
    warm_up = 2 * options.workers + 2  # those that were prepared before the clock starts
    images, begin, number = 0, 0.0, 0
    while True:
        for batch, _ in loader:
            number += 1
            if number == warm_up:
                begin = time.perf_counter()
            elif number > warm_up:
                images += len(batch)
                if time.perf_counter() - begin >= options.seconds:
                    print(json.dumps({"images_per_second": images / (time.perf_counter() - begin),
                                      "libraries": f"torch {torch.__version__}, torchvision {torchvision.__version__}, "
                                                   f"Pillow {Image.__version__}"}))
                    return


if __name__ == "__main__":
    main()
