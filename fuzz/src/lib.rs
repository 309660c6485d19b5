//! What each fuzz target does with its bytes: it opens them as the program opens such a file.
//!
//! Whatever the bytes are, the reader returns, with what it has read or with an error that has words. A panic
//! is a finding; so is a block of memory beyond what `cargo fuzz run … -- -malloc_limit_mb=N` allows. Panics
//! of a decoder that the program catches and tells as an error are none.
//!
//! `tests/fuzz.rs` includes this file too, and opens every input that was once a finding.

use std::cell::OnceCell;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use trainer::data::{Colour, read_image, recognise};
use trainer::model::weights;
use trainer::report::{Judged, Record, TracedStep, page};
use trainer::run::state::{StateStore, StateTag, read_state};
use trainer::run::{RunLock, best_findings, list_runs};

/// Opens some bytes as the program opens such a file.
pub type Target = fn(&[u8]);

/// Each target, in the order of names.
pub const TARGETS: [(&str, Target); 15] = [
    ("config", config),
    ("csv", csv),
    ("dicom", dicom),
    ("jpeg", jpeg),
    ("jpeg2000", jpeg2000),
    ("jpeg_ls", jpeg_ls),
    ("manifest", manifest),
    ("npy", npy),
    ("npz", npz),
    ("parquet", parquet),
    ("png", png),
    ("pth", pth),
    ("run_folder", run_folder),
    ("safetensors", safetensors),
    ("tiff", tiff),
];

thread_local! {
    /// In memory, where the system has such a place.
    static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
}

/// Does `work` in a folder that holds these files and is removed with them in the end.
fn with_files(files: &[(&str, &[u8])], work: impl FnOnce(&Path)) {
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| {
            tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
        });
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("is in the folder")).expect("is made");
            fs::write(path, bytes).expect("is written");
        }
        work(folder.path());
        for (name, _) in files {
            fs::remove_file(folder.path().join(name)).expect("is removed");
        }
    });
}

fn with_file(name: &str, bytes: &[u8], work: impl FnOnce(&Path)) {
    with_files(&[(name, bytes)], |folder| work(&folder.join(name)));
}

/// The error has words.
fn told<T>(result: Result<T, impl ToString>) -> Option<T> {
    result.map_err(|error| assert!(!error.to_string().is_empty())).ok()
}

/// A configuration; what follows a zero is an override, as after `--set`.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\0').map(str::to_owned);
    let text = parts.next().unwrap_or_default();
    let overrides: Vec<String> = parts.collect();
    told(trainer::config::read("fuzz.toml".to_owned(), text, &overrides));
}

fn image(name: &str, bytes: &[u8]) {
    with_file(name, bytes, |path| {
        told(read_image(path, None, None, Colour::Luma));
        told(read_image(path, None, Some([8, 8]), Colour::Luma));
        told(read_image(path, None, None, Colour::Rgb));
    });
}

/// A PNG file.
pub fn png(bytes: &[u8]) {
    image("image.png", bytes);
}

/// A JPEG file.
pub fn jpeg(bytes: &[u8]) {
    image("image.jpg", bytes);
}

/// A TIFF file.
pub fn tiff(bytes: &[u8]) {
    image("image.tif", bytes);
}

/// A DICOM file, of any transfer syntax.
pub fn dicom(bytes: &[u8]) {
    image("image.dcm", bytes);
}

/// A stream of JPEG 2000 in a DICOM file, as [`encapsulated`] says.
pub fn jpeg2000(bytes: &[u8]) {
    encapsulated("1.2.840.10008.1.2.4.91", bytes);
}

/// A stream of JPEG-LS in a DICOM file, as [`encapsulated`] says.
pub fn jpeg_ls(bytes: &[u8]) {
    encapsulated("1.2.840.10008.1.2.4.81", bytes);
}

/// A DICOM file of transfer syntax `syntax` around the bytes from the fourth on, which hold its pixels. The first
/// three are rows, columns, and of what kind the pixels are: 16 for signed ones, 32 for colours, and the bits less 1.
fn encapsulated(syntax: &str, bytes: &[u8]) {
    let [rows, columns, kind, stream @ ..] = bytes else { return };
    let mut file = [&[0; 128][..], b"DICM"].concat();
    let mut element = |group: u16, number: u16, kind: &[u8], value: &[u8]| {
        file.extend(group.to_le_bytes().into_iter().chain(number.to_le_bytes()));
        file.extend(kind);
        if kind.len() == 2 {
            file.extend((value.len() as u16).to_le_bytes());
        }
        file.extend(value);
    };
    element(2, 0x10, b"UI", format!("{syntax}\0").as_bytes());
    let (bits, signed, colour) = (u16::from(kind & 15) + 1, kind >> 4 & 1, kind >> 5 & 1 == 1);
    element(0x28, 4, b"CS", if colour { b"RGB " } else { b"MONOCHROME2 " });
    let allocated = if bits > 8 { 16 } else { 8 };
    let numbers: [(u16, u16); 7] = [
        (0x02, if colour { 3 } else { 1 }),
        (0x10, u16::from(*rows)),
        (0x11, u16::from(*columns)),
        (0x100, allocated),
        (0x101, bits),
        (0x102, bits - 1),
        (0x103, u16::from(signed)),
    ];
    for (number, value) in numbers {
        element(0x28, number, b"US", &value.to_le_bytes());
    }
    // Of a length that is not said, and in it the table of offsets, which is empty, and the stream.
    element(0x7FE0, 0x10, b"OB\0\0\xff\xff\xff\xff", b"\xfe\xff\x00\xe0\0\0\0\0\xfe\xff\x00\xe0");
    file.extend((stream.len() as u32).to_le_bytes());
    file.extend(stream);
    file.extend(b"\xfe\xff\xdd\xe0\0\0\0\0");
    dicom(&file);
}

fn array(name: &str, bytes: &[u8]) {
    with_file(name, bytes, |path| {
        for item in [0, 1, usize::MAX] {
            told(read_image(path, Some(item), None, Colour::Luma));
        }
        // Reads them as labels too.
        let folder = path.parent().expect("is in a folder");
        told(recognise(folder));
    });
}

/// A NumPy array.
pub fn npy(bytes: &[u8]) {
    array("images.npy", bytes);
}

/// An archive of NumPy arrays.
pub fn npz(bytes: &[u8]) {
    array("data.npz", bytes);
}

/// A table as text.
pub fn csv(bytes: &[u8]) {
    // Gzip by its first bytes.
    let name = if bytes.starts_with(&[0x1f, 0x8b]) { "table.csv.gz" } else { "table.csv" };
    with_file(name, bytes, |path| drop(told(recognise(path))));
}

/// A table in Parquet's format.
pub fn parquet(bytes: &[u8]) {
    with_file("table.parquet", bytes, |path| drop(told(recognise(path))));
}

/// Weights in a SafeTensors file.
pub fn safetensors(bytes: &[u8]) {
    with_file("weights.safetensors", bytes, |path| drop(told(weights::read(path))));
}

/// Weights in a pickle of PyTorch's, in a ZIP archive or not.
pub fn pth(bytes: &[u8]) {
    with_file("weights.pth", bytes, |path| drop(told(weights::read(path))));
}

/// The manifest of a saved state, beside a file that it may name.
pub fn manifest(bytes: &[u8]) {
    let files: [(&str, &[u8]); 2] =
        [("manifest.json", bytes), ("weights.safetensors", b"12345678")];
    with_files(&files, |folder| drop(told(read_state(folder))));
}

/// The files of a run folder and of the state in it, in this order, with a zero between them.
const RUN: [&str; 2] = ["config.toml", "metrics.jsonl"];
const STATE: [&str; 3] = ["validation.csv", "fitted.json", "state.json"];

/// A run folder: what `trainer list` and `trainer report` do with it. Its state is sealed, so that its files are
/// read.
pub fn run_folder(bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    let files: Vec<(&str, &[u8])> = RUN.into_iter().zip(&mut parts).collect();
    let sealed: Vec<(String, Vec<u8>)> =
        STATE.into_iter().zip(parts).map(|(name, part)| (name.to_owned(), part.to_vec())).collect();
    with_files(&files, |folder| {
        if !sealed.is_empty() {
            let lock = RunLock::acquire(folder).expect("is free");
            let mut store = StateStore::open(&lock, 1).expect("opens");
            let tag = StateTag { epoch: 1, step: 1, batch: 0, reason: "fuzz".to_owned() };
            store.save(&tag, &sealed, true).expect("is saved");
        }
        told(list_runs(folder));
        if let Some(record) = told(Record::read(folder)) {
            let judged = Judged::read(folder, &record.config, best_findings);
            page(&record, &judged, TracedStep::read(folder).as_ref());
        }
        for state in ["last", "best"] {
            let _ = fs::remove_dir_all(folder.join(state));
        }
    });
}
