use std::fs;
use std::io::Write;
use std::path::PathBuf;

use rand::{Rng, RngExt};
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Expected {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tables").join(name)
}

/// Numbers and booleans have more than one spelling.
fn same(ours: &str, theirs: &str) -> bool {
    match (ours.parse::<f64>(), theirs.parse::<f64>()) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => ours == theirs || ours == theirs.to_lowercase(),
    }
}

#[test]
fn every_form_of_a_table_holds_what_pandas_wrote() {
    let expected = include_str!("../../../tests/fixtures/tables/expected.json");
    let expected: Expected = serde_json::from_str(expected).expect("reads");
    for name in [
        "labels.csv",
        "labels.tsv",
        "labels.csv.gz",
        "labels.none.parquet",
        "labels.snappy.parquet",
        "labels.gzip.parquet",
        "labels.lz4.parquet",
        "labels.zstd.parquet",
    ] {
        let table = Table::read(&fixture(name), String::new).expect("reads");
        assert_eq!(table.header, expected.header, "{name}");
        assert_eq!(table.rows().len(), expected.rows.len(), "{name}");
        for (place, (ours, theirs)) in table.rows().zip(&expected.rows).enumerate() {
            assert_eq!(ours.line(), place as u64 + 2);
            for (column, theirs) in theirs.iter().enumerate() {
                assert!(same(ours.at(column), theirs), "{name}: {} {theirs}", ours.at(column));
            }
        }
    }
}

fn written(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("is written");
    (folder, path)
}

/// The message, the temporary folder taken out.
fn said(name: &str, bytes: &[u8]) -> String {
    let (folder, path) = written(name, bytes);
    let error = Table::read(&path, || "put it there".to_owned()).expect_err("is refused");
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("packs");
    packer.finish().expect("packs")
}

#[test]
fn wrong_tables_are_named_by_file_and_line() {
    insta::assert_snapshot!(said("t.doc", b"PK"), @"`t.doc`: its name ends in none of .csv, .csv.gz, .tsv, .tsv.gz and .parquet");
    insta::assert_snapshot!(said("t.csv", b""), @"`t.csv`: the file is empty");
    insta::assert_snapshot!(said("t.csv", b"a,b\n"), @"`t.csv` leaves no image: it has no row below its header");
    insta::assert_snapshot!(said("t.csv", b"a,b,a\n1,2,3\n"), @"`t.csv`, line 1: two columns are called `a`");
    insta::assert_snapshot!(said("t.tsv", b"a\tb\n1\t2\n3\n"), @"`t.tsv`, line 3: the row has 1 column, the header has 2");
    insta::assert_snapshot!(said("t.csv", b"a,b\n1,\xFC\n"), @r#"`t.csv`, line 2: it is not UTF-8 text (in column `b`); save it as UTF-8 (in Excel "CSV UTF-8")"#);
    insta::assert_snapshot!(said("t.csv.gz", b"a,b\n1,2\n"), @"`t.csv.gz`: it does not unpack (unexpected end of file)");
    let packed = gzipped("a,b\n".repeat(5000).as_bytes());
    insta::assert_snapshot!(said("t.csv.gz", &packed[..packed.len() - 9]), @"`t.csv.gz`: it does not unpack (incomplete deflate stream)");
    insta::assert_snapshot!(said("t.parquet", b"PAR1"), @"`t.parquet`: it does not decode (EOF: Parquet file too small. Size is 4 but need 8)");
}

#[test]
fn a_missing_table_says_what_to_do() {
    let error = Table::read(Path::new("nowhere/t.csv"), || "put it there".to_owned());
    let error = error.expect_err("is refused");
    let here = std::env::current_dir().expect("a folder").display().to_string();
    let expected = format!("there is no `nowhere/t.csv` (looked in {here})");
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.help().as_deref(), Some("put it there"));
}

#[test]
fn columns_that_are_missing_are_all_named_once() {
    let (_folder, path) = written("t.csv", b"a,b\n1,2\n");
    let table = Table::read(&path, String::new).expect("reads");
    assert_eq!(table.columns(&["b", "a", "b"], |_| String::new()).expect("are there"), [1, 0, 1]);
    let help = |missing: &[String]| missing.join("+");
    let error = table.columns(&["c", "a", "d", "c"], help).expect_err("are missing");
    assert_eq!(error.help().as_deref(), Some("c+d"));
    let error = error.to_string();
    assert!(error.ends_with("the columns `c`, `d` are missing (found: a, b)"), "{error}");
}

#[test]
fn a_byte_order_mark_windows_line_ends_and_blank_lines_are_read() {
    let (_folder, path) = written("t.csv", "\u{feff}a,b\r\n1, 2 \r\n\r\n3,\r\n".as_bytes());
    let table = Table::read(&path, String::new).expect("reads");
    let rows: Vec<_> = table.rows().map(|row| (row.line(), row.at(0), row.at(1))).collect();
    assert_eq!(rows, [(2, "1", "2"), (4, "3", "")]);
}

#[test]
fn numbers_are_checked_where_they_stand() {
    let (_folder, path) = written("t.csv", b"a,b\n1,0.5\n,x\n");
    let table = Table::read(&path, String::new).expect("reads");
    let rows: Vec<_> = table.rows().collect();
    let number = |row: usize, column| rows[row].number(column, "0 to 1", |n| n <= 1.0);
    assert_eq!((number(0, 0).ok(), number(0, 1).ok()), (Some(1.0), Some(0.5)));
    assert!(number(1, 0).expect("is unknown").is_nan());
    let error = number(1, 1).expect_err("is refused").to_string();
    assert!(error.ends_with("t.csv`, line 3, column `b`: `x` is not 0 to 1"), "{error}");
}

/// The header and the first row.
fn read(name: &str, text: &str) -> (Vec<String>, Vec<String>) {
    let (_folder, path) = written(name, text.as_bytes());
    let table = Table::read(&path, String::new).expect("reads");
    assert_eq!(Table::header(&path, String::new).expect("reads"), table.header);
    let fields = (0..table.header.len()).map(|place| table.records[0].field(place).to_owned());
    (table.header.clone(), fields.collect())
}

#[test]
fn the_separator_is_seen_in_the_header_whatever_the_file_is_called() {
    let expected =
        (vec!["image".to_owned(), "Age".to_owned()], vec!["a.png".into(), "31,5".into()]);
    assert_eq!(read("t.csv", "image;Age\na.png;31,5\n"), expected);
    assert_eq!(read("t.csv", "image\tAge\na.png\t31,5\n"), expected);
    assert_eq!(read("t.tsv", "image;Age\na.png;31,5\n"), expected);
    assert_eq!(read("t.tsv", "image,Age\na.png,\"31,5\"\n"), expected);
    assert_eq!(read("t.csv", "\"image\";\"Age\"\n\"a.png\";\"31,5\"\n"), expected);
    // A comma in the header decides, whatever else stands there.
    let commas = read("t.csv", "image,a;b;c\nx.png,1\n");
    assert_eq!(commas.0, ["image", "a;b;c"]);
    let lines = said("t.csv", b"a;b\n1;2\n3\n");
    assert_eq!(lines, "`t.csv`, line 3: the row has 1 column, the header has 2");
}

#[test]
fn what_pandas_reads_as_unknown_is_unknown() {
    let expected = include_str!("../../../tests/fixtures/tables/unknown.json");
    let expected: std::collections::BTreeMap<String, bool> =
        serde_json::from_str(expected).expect("reads");
    assert!(expected.values().filter(|unknown| **unknown).count() >= 19);
    assert!(expected.values().any(|unknown| !unknown));
    for (text, unknown) in expected {
        let (_folder, path) = written("t.csv", format!("a,b\n1,{text}\n").as_bytes());
        let table = Table::read(&path, String::new).expect("reads");
        let row = table.rows().next().expect("one row");
        assert_eq!(row.is_unknown(1), unknown, "{text:?}");
        let number = row.number(1, "a number", f32::is_finite).map(f32::is_nan);
        assert_eq!(number.unwrap_or(false), unknown, "{text:?}");
    }
}

#[test]
fn a_decimal_comma_is_named() {
    let (_folder, path) = written("t.csv", b"a;b\n1;31,5\n2;x,y\n");
    let table = Table::read(&path, String::new).expect("reads");
    let said = |row: usize| {
        let row = table.rows().nth(row).expect("is there");
        row.number(1, "a number or nothing", f32::is_finite).expect_err("is refused").to_string()
    };
    assert!(said(0).ends_with("line 2, column `b`: `31,5` is not a number or nothing; numbers are written with a decimal point: `31.5`"), "{}", said(0));
    assert!(said(1).ends_with("`x,y` is not a number or nothing"), "{}", said(1));
}

#[test]
fn what_excel_saves_is_read_or_named() {
    let utf_16 = "a;b\n1;ä\n".encode_utf16().flat_map(u16::to_le_bytes);
    let utf_16: Vec<u8> = [0xFF, 0xFE].into_iter().chain(utf_16).collect();
    let told = [
        said("t.xlsx", b"PK"),
        said(
            "t.csv",
            "Größe;b\n1;2\n".encode_utf16().map(|c| c as u8).collect::<Vec<_>>().as_slice(),
        ),
        said("t.csv", &utf_16),
    ];
    insta::assert_snapshot!(told.join("\n"));
    let expected =
        (vec!["image".to_owned(), "Age".to_owned()], vec!["a.png".into(), "31,5".into()]);
    for separator in [";", "\t", ","] {
        let table = format!(
            "sep={separator}\r\nimage{separator}Age\r\na.png{separator}\"31,5\"\r\n{separator}\r\n"
        );
        for name in ["t.csv", "t.tsv"] {
            assert_eq!(read(name, &table), expected, "{name} {table:?}");
        }
    }
    let (_folder, path) = written("t.csv", b"sep=;\na;b\n1;2\n;\n;;;\n3;4\n;\n");
    let table = Table::read(&path, String::new).expect("reads");
    let rows: Vec<_> = table.rows().map(|row| (row.line(), row.at(0), row.at(1))).collect();
    assert_eq!(rows, [(3, "1", "2"), (6, "3", "4")]);
}

#[test]
fn a_decimal_comma_is_read_where_it_is_told_of() {
    let text = b"a;b\n1;31,5\n2;-0,25\n3;7\n4;1.5\n5;1,2,3\n6;NA\n";
    let (_folder, path) = written("t.csv", text);
    let table = Table::read(&path, String::new).expect("reads").with_decimal_comma(true);
    let number = |row: usize| {
        let row = table.rows().nth(row).expect("is there");
        row.number(1, "a number or nothing", f32::is_finite)
    };
    let numbers: Vec<f32> = (0..3).map(|row| number(row).expect("a number")).collect();
    assert_eq!(numbers, [31.5, -0.25, 7.0]);
    assert!(number(5).expect("is unknown").is_nan());
    let point = number(3).expect_err("could be a thousand and a half");
    assert_eq!(
        point.help().as_deref(),
        Some("under `decimal = \",\"` every number has a decimal comma")
    );
    number(4).expect_err("is no number");
    // What a Parquet file holds as numbers has no comma.
    let numbers = |comma| {
        let table = Table::read(&fixture("labels.zstd.parquet"), String::new).expect("reads");
        let table = table.with_decimal_comma(comma);
        let fields = table.rows().flat_map(|row| {
            (0..table.header.len()).map(move |column| {
                row.number(column, "a number", f32::is_finite).ok().map(f32::to_bits)
            })
        });
        fields.collect::<Vec<_>>()
    };
    assert_eq!(numbers(true), numbers(false));
}

/// Six bytes announce two thousand million booleans, which take no byte each where they are skipped.
#[test]
fn lists_of_booleans_in_parquet_are_refused_before_they_take_hours() {
    // A field of 4 lists of lists; each has 2³¹ - 1 booleans.
    let mut lists = vec![0x09, 0xc8, 0x01, 0xf9, 4];
    lists.extend([0xf1, 0xff, 0xff, 0xff, 0xff, 0x07].repeat(4));
    lists.push(0);
    let length = u32::try_from(lists.len()).expect("is short").to_le_bytes();
    let footer = [&b"PAR1"[..], &lists[..], &length[..], b"PAR1"].concat();
    insta::assert_snapshot!(said("t.parquet", &footer), @"`t.parquet`: it does not decode (Parquet error: it has a list of booleans)");

    let mut page = fs::read(fixture("labels.none.parquet")).expect("reads");
    page[4..4 + lists.len()].copy_from_slice(&lists);
    insta::assert_snapshot!(said("t.parquet", &page), @"`t.parquet`, line 2: it does not decode (Parquet error: it has a list of booleans)");
}

fn finding(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/findings/parquet").join(name);
    said("t.parquet", &fs::read(path).expect("reads"))
}

#[test]
fn parquet_with_fields_of_other_types_or_boundless_dictionaries_is_refused() {
    insta::assert_snapshot!(finding("slow-mistyped-footer"), @"`t.parquet`: it does not decode (Parquet error: its field 1 is of another type than it should be)");
    insta::assert_snapshot!(finding("boundless-dictionary"), @"`t.parquet`, line 2: it does not decode (Parquet error: a dictionary of 939524095 values is more than such a file holds)");
}

/// A row of one digit takes 45 bytes of memory; in Parquet, a million rows that are all null are six bytes of a file.
#[test]
fn rows_of_packed_tables_are_counted_with_what_they_take_of_memory() {
    insta::assert_snapshot!(finding("sixty-million-nulls"), @"`t.parquet`, line 1525458: it unpacks to more than 64.0 MiB; packed tables may unpack to 64 MiB and 100 times their size");
    insta::assert_snapshot!(finding("rows-without-columns"), @"`t.parquet`: it has no columns");
    insta::assert_snapshot!(said("t.csv.gz", &gzipped("a\n".repeat(2_000_000).as_bytes())), @"`t.csv.gz`, line 1577494: it unpacks to more than 67.7 MiB; packed tables may unpack to 64 MiB and 100 times their size");
}

#[test]
fn damaged_tables_are_errors_or_tables_and_never_panics() {
    for name in
        ["labels.csv.gz", "labels.snappy.parquet", "labels.gzip.parquet", "labels.zstd.parquet"]
    {
        let whole = fs::read(fixture(name)).expect("reads");
        let mut refused = 0;
        for trial in 0..250 {
            let mut random = crate::random::stream(3, name, &[trial]);
            let mut bytes = whole.clone();
            for _ in 0..random.random_range(1..5) {
                let place = random.random_range(0..bytes.len());
                match random.next_u32() % 4 {
                    0 => bytes.truncate(place.max(1)),
                    _ => bytes[place] = random.random(),
                }
            }
            let (_folder, path) = written(name, &bytes);
            refused += usize::from(Table::read(&path, String::new).is_err());
        }
        assert!(refused > 50, "{name}: {refused}");
    }
}

#[test]
fn a_packed_table_that_unpacks_to_a_hundred_times_its_size_is_refused() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().expect("is made");
    let path = folder.path().join("bomb.csv.gz");
    let packed = |mebibytes: usize| {
        let file = std::fs::File::create(&path).expect("is made");
        let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        let block = vec![b'0'; 1 << 20];
        for _ in 0..mebibytes {
            gzip.write_all(&block).expect("is written");
        }
        gzip.finish().expect("is written").metadata().expect("is there").len()
    };
    let read = || {
        let mut bytes = vec![0; 1 << 16];
        let mut text = text::open(&path, true, String::new).expect("opens");
        loop {
            match text.read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    assert!(most_unpacked(packed(80)) < 80 << 20);
    let told = read().expect_err("is refused");
    assert!(told.starts_with("it unpacks to more than 7"), "{told}");
    assert!(most_unpacked(packed(60)) > 60 << 20);
    assert_eq!(read(), Ok(()));
    // What is large packed may be larger unpacked, and nothing larger than all.
    assert_eq!(most_unpacked(1 << 20), 164 << 20);
    assert_eq!(most_unpacked(1 << 40), 4 << 30);
}
