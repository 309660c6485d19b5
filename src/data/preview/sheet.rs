//! Tiles with text below, side by side, as a PNG.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

use super::super::config::Fit;
use super::super::error::DataError;
use super::super::image::png::encode;
use super::super::image::{RawImage, Samples};
use super::super::resize::resize;

const WEIGHT: FontWeight = FontWeight::Regular;
const HEIGHT: RasterHeight = RasterHeight::Size16;
/// Pixels from the top of one line of text to that of the next, and around tiles.
const LINE: usize = 18;
const GAP: usize = 12;
/// Characters that a caption has room for, however small the image.
const LEAST_CHARACTERS: usize = 32;
/// Grey levels behind the tiles and of text: its first line, and the others.
const PAPER: u8 = 40;
const TITLE: u8 = 255;
const TEXT: u8 = 190;
/// Lines of a caption, at most.
const MOST_LINES: usize = 12;

/// An image and what stands below it.
pub(super) struct Tile {
    pixels: Vec<u8>,
    height: usize,
    width: usize,
    lines: Vec<String>,
}

impl Tile {
    /// Enlarges or reduces the image of `size` so that its longer side is between `least` and
    /// `most` pixels.
    pub fn new(
        pixels: &[u8],
        size: [usize; 2],
        [least, most]: [usize; 2],
        lines: Vec<String>,
    ) -> Self {
        let longer = size[0].max(size[1]);
        let (pixels, [height, width]) = if longer > most {
            let of = |side: usize| (side * most / longer).max(1);
            reduced(pixels, size, [of(size[0]), of(size[1])])
        } else {
            enlarged(pixels, size, least.div_ceil(longer))
        };
        Self { pixels, height, width, lines }
    }
}

fn enlarged(pixels: &[u8], [height, width]: [usize; 2], factor: usize) -> (Vec<u8>, [usize; 2]) {
    let size = [height * factor, width * factor];
    let place = |at: usize| pixels[at / size[1] / factor * width + at % size[1] / factor];
    ((0..size[0] * size[1]).map(place).collect(), size)
}

fn reduced(pixels: &[u8], [height, width]: [usize; 2], to: [usize; 2]) -> (Vec<u8>, [usize; 2]) {
    let samples = Samples::U8(pixels.to_vec());
    let image = RawImage { width, height, planes: 1, samples, depth: 8 };
    match resize(&image, to, Fit::Stretch).samples {
        Samples::U8(pixels) => (pixels, to),
        // Samples keep their type.
        Samples::U16(_) | Samples::F32(_) => (vec![0; to[0] * to[1]], to),
    }
}

/// Tiles in rows of equal length, the last perhaps shorter.
pub(super) struct Sheet {
    columns: usize,
    tiles: Vec<Tile>,
}

impl Sheet {
    pub fn new(columns: usize) -> Self {
        Self { columns, tiles: Vec::new() }
    }

    pub fn add(&mut self, tile: Tile) {
        self.tiles.push(tile);
    }

    /// The sheet as a PNG, and its height and width.
    ///
    /// # Errors
    /// When the encoder fails, which no sheet makes it do.
    pub fn png(&self) -> Result<(Vec<u8>, [usize; 2]), DataError> {
        let letter = get_raster_width(WEIGHT, HEIGHT);
        let widest = self.tiles.iter().map(|tile| tile.width).max().unwrap_or(0);
        let across = widest.max(LEAST_CHARACTERS * letter);
        let width = GAP + self.columns * (across + GAP);
        let rows: Vec<Row> =
            self.tiles.chunks(self.columns).map(|tiles| Row::new(tiles, across / letter)).collect();
        let height = GAP + rows.iter().map(|row| row.height + GAP).sum::<usize>();
        let mut canvas = Canvas { pixels: vec![PAPER; width * height], width };
        let mut top = GAP;
        for row in &rows {
            for (column, (tile, lines)) in row.tiles.iter().zip(&row.captions).enumerate() {
                let left = GAP + column * (across + GAP);
                canvas.draw(tile, [top, left]);
                for (line, text) in lines.iter().enumerate() {
                    let grey = if line == 0 { TITLE } else { TEXT };
                    canvas.write(text, [top + row.images + line * LINE + 4, left], grey);
                }
            }
            top += row.height + GAP;
        }
        let png = encode(&canvas.pixels, [height, width]).map_err(|error| {
            DataError::Config(format!("the preview cannot be encoded: {error}"))
        })?;
        Ok((png, [height, width]))
    }
}

/// Tiles side by side, with their captions in lines.
struct Row<'a> {
    tiles: &'a [Tile],
    captions: Vec<Vec<String>>,
    /// Height of the images, and of all.
    images: usize,
    height: usize,
}

impl<'a> Row<'a> {
    fn new(tiles: &'a [Tile], characters: usize) -> Self {
        let captions: Vec<Vec<String>> =
            tiles.iter().map(|tile| lines(&tile.lines, characters)).collect();
        let images = tiles.iter().map(|tile| tile.height).max().unwrap_or(0);
        let most = captions.iter().map(Vec::len).max().unwrap_or(0);
        Self { tiles, captions, images, height: images + most * LINE + 4 }
    }
}

struct Canvas {
    pixels: Vec<u8>,
    width: usize,
}

impl Canvas {
    fn draw(&mut self, tile: &Tile, [top, left]: [usize; 2]) {
        for (row, line) in tile.pixels.chunks_exact(tile.width).enumerate() {
            let start = (top + row) * self.width + left;
            self.pixels[start..start + line.len()].copy_from_slice(line);
        }
    }

    fn write(&mut self, text: &str, [top, left]: [usize; 2], grey: u8) {
        let letters = text.chars().map(|letter| {
            let known = get_raster(letter, WEIGHT, HEIGHT);
            known.or_else(|| get_raster('?', WEIGHT, HEIGHT))
        });
        for (place, letter) in letters.enumerate() {
            let Some(letter) = letter else { continue };
            let left = left + place * letter.width();
            for (row, line) in letter.rows().enumerate() {
                let start = (top + row) * self.width + left;
                for (pixel, ink) in self.pixels[start..].iter_mut().zip(line) {
                    let [paper, grey, ink] = [*pixel, grey, *ink].map(u32::from);
                    *pixel = ((paper * (255 - ink) + grey * ink) / 255) as u8;
                }
            }
        }
    }
}

/// The first text on one line, of which the end tells most; the others broken at spaces.
fn lines(texts: &[String], characters: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(title) = texts.first() {
        let length = title.chars().count();
        lines.push(match length > characters {
            true => {
                let end = title.chars().skip(length + 3 - characters);
                format!("...{}", end.collect::<String>())
            }
            false => title.clone(),
        });
    }
    for text in texts.iter().skip(1) {
        broken(text, characters, &mut lines);
    }
    if lines.len() > MOST_LINES {
        lines.truncate(MOST_LINES - 1);
        lines.push("...".to_owned());
    }
    lines
}

fn broken(text: &str, characters: usize, lines: &mut Vec<String>) {
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word = word;
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > characters {
            lines.push(std::mem::take(&mut line));
        }
        // A word longer than a line goes on in the next.
        while let Some((end, _)) = word.char_indices().nth(characters) {
            let (head, rest) = word.split_at(end);
            lines.push(head.to_owned());
            word = rest;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captions_are_broken_at_spaces_and_long_names_keep_their_end() {
        let texts = ["train/patient00001/view1.png", "findings: Edema, Pleural Effusion", "x"];
        let texts = texts.map(str::to_owned);
        let expected = ["...00001/view1.png", "findings: Edema,", "Pleural Effusion", "x"];
        assert_eq!(lines(&texts, 18), expected);
        assert_eq!(lines(&["é".repeat(30)], 8), ["...ééééé"]);
        assert_eq!(lines(&["a".to_owned(), "b".repeat(20)], 8).len(), 4);
        let many = vec!["word".to_owned(); 40];
        assert_eq!(lines(&many, 8).len(), MOST_LINES);
    }

    #[test]
    fn small_images_are_enlarged_and_large_ones_reduced() {
        let tile = |size: [usize; 2]| {
            let tile = Tile::new(&vec![9; size[0] * size[1]], size, [160, 320], Vec::new());
            assert!(tile.pixels.iter().all(|&pixel| pixel == 9));
            assert_eq!(tile.pixels.len(), tile.height * tile.width);
            [tile.height, tile.width]
        };
        assert_eq!(tile([64, 64]), [192, 192]);
        assert_eq!(tile([200, 300]), [200, 300]);
        assert_eq!(tile([2000, 1000]), [320, 160]);
        assert_eq!(tile([16384, 32]), [320, 1]);
    }
}
