"""Opens pages that `trainer` wrote in a browser, looks for faults, and takes the screenshots that docs/ shows.

usage: apt install chromium
       pip install playwright==1.65.2 pillow==13.0.0 pypdfium2==5.15.2
       npm install axe-core@4.14.1
       python benches/pages.py checkpoints/quickstart/report.html --axe node_modules/axe-core/axe.min.js \\
           [--shots docs/report] [--chromium /usr/bin/chromium]

A fault ends it with 1: an error or warning on the console, a request to anywhere but the page itself, a violation that
axe finds (light, dark, desktop and phone, everything unfolded), a page wider than its screen. With --shots it writes
desktop.png, phone.png, dark.png and print.png there, each of 64 colours and the beginning of the page only; of a page
that is not called report.html they begin with its name, such as sweep-desktop.png.
"""
import argparse
import io
import pathlib
import sys

import pypdfium2
from PIL import Image
from playwright.sync_api import sync_playwright

DESKTOP, PHONE = {"width": 1280, "height": 1600}, {"width": 390, "height": 1400}
LOOKS = [("desktop", DESKTOP, "light"), ("phone", PHONE, "light"), ("dark", DESKTOP, "dark"), ("phone-dark", PHONE, "dark")]
WIDTH, COLOURS = 800, 64


def save(picture, path):
    picture = picture.convert("RGB")
    picture.thumbnail((WIDTH, 4 * WIDTH))
    picture = picture.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:.0f} kB")


def look(browser, page_file, name, size, scheme, axe, shots, whole):
    """The faults of a page in one look."""
    faults = []
    shot = "" if page_file.stem == "report" else f"{page_file.stem}-"
    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=False)
    page = context.new_page()
    address = page_file.resolve().as_uri()
    page.on("console", lambda message: faults.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("request", lambda request: request.url not in (address, "data:,") and faults.append(f"request: {request.url}"))
    page.goto(address)
    page.wait_for_load_state("networkidle")
    if shots and name in ("desktop", "phone", "dark"):
        save(Image.open(io.BytesIO(page.screenshot())), shots / f"{shot}{name}.png")
    if whole:
        page.screenshot(path=whole / f"{page_file.stem}-{name}.png", full_page=True)
    if name == "desktop":
        document = pypdfium2.PdfDocument(page.pdf(format="A4", margin={side: "15mm" for side in ("top", "bottom", "left", "right")}))
        if shots:
            save(document[0].render(scale=2).to_pil(), shots / f"{shot}print.png")
        if whole:
            for number in range(len(document)):
                document[number].render(scale=1.5).to_pil().save(whole / f"{page_file.stem}-print-{number + 1}.png")
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    if wide[0] > wide[1]:
        faults.append(f"{wide[0]} pixels wide on a screen of {wide[1]}")
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})")
    for violation in found["violations"]:
        faults.append(f"axe {violation['id']}: {violation['help']}: {violation['nodes'][0]['html'][:200]} ({len(violation['nodes'])} places)")
    print(f"{page_file} {name}: {len(found['passes'])} rules passed, {len(found['violations'])} violated, {len(found['incomplete'])} undecided")
    for undecided in found["incomplete"]:
        print(f"  undecided {undecided['id']}: {undecided['nodes'][0]['html'][:120]}")
    context.close()
    return [f"{page_file} {name}: {fault}" for fault in faults]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--axe", required=True, type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path)
    parser.add_argument("--whole", type=pathlib.Path, help="a folder for pictures of whole pages, to look at")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    asked = parser.parse_args()
    axe, faults = asked.axe.read_text(), []
    for folder in filter(None, [asked.shots, asked.whole]):
        folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox"])
        for page_file in asked.pages:
            for name, size, scheme in LOOKS:
                faults += look(browser, page_file, name, size, scheme, axe, asked.shots, asked.whole)
        browser.close()
    print("\n".join(faults) or "no faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
