"""PNG files beside the SVG files that the pages show: sites that show Markdown often show no SVG.

usage: pip install cairosvg==2.9.1 pillow==13.0.0
       python benches/pictures.py [SVG...]

Without arguments, all of benches/results. A picture is 1200 pixels wide and has 64 colours, which is enough for curves
and text and keeps it at tens of kilobytes.
"""
import io
import pathlib
import sys

import cairosvg
from PIL import Image

WIDTH, COLOURS = 1200, 64


def rasterise(svg):
    drawn = cairosvg.svg2png(url=str(svg), output_width=WIDTH)
    picture = Image.open(io.BytesIO(drawn)).convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    picture.save(svg.with_suffix(".png"), optimize=True)
    print(f"{svg.with_suffix('.png')}: {svg.with_suffix('.png').stat().st_size / 1024:.0f} KiB")


def main():
    results = pathlib.Path(__file__).parent / "results"
    for svg in map(pathlib.Path, sys.argv[1:]) if sys.argv[1:] else sorted(results.glob("*.svg")):
        rasterise(svg)


if __name__ == "__main__":
    main()
