//! The store under the statements that CubeCL sends.

use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use turso::{Builder, Connection, Result};

const INSERT: &str = "INSERT INTO entries (namespace, key, value, origin) \
                      VALUES (?1, ?2, ?3, ?4) \
                      ON CONFLICT(namespace, key) DO UPDATE \
                      SET value = excluded.value, origin = excluded.origin \
                      WHERE entries.origin = 1 AND excluded.origin = 0";
const REPLACE: &str = "INSERT INTO entries (namespace, key, value, origin) \
                       VALUES (?1, ?2, ?3, ?4) \
                       ON CONFLICT(namespace, key) DO UPDATE \
                       SET value = excluded.value, origin = excluded.origin";
const SELECT: &str = "SELECT value FROM entries WHERE namespace = ?1 AND key = ?2";
const SCAN: &str = "SELECT key, value, origin FROM entries WHERE namespace = ?1";
const PURGE: &str = "DELETE FROM entries WHERE namespace = ?1";
const PURGE_KEY: &str = "DELETE FROM entries WHERE namespace = ?1 AND key = ?2";
const SUMMARY: &str = "SELECT namespace, COUNT(*), SUM(length(key) + length(value)) \
                       FROM entries GROUP BY namespace ORDER BY namespace";

/// The result of a future, none of which ever waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("nothing waits"),
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("kernels.db.records")
    }

    fn builder(&self) -> Builder {
        Builder::new_local(self.0.path().join("kernels.db").to_str().expect("UTF-8"))
    }

    /// As another process opens it.
    fn open(&self) -> Connection {
        now(self.builder().build()).expect("opens").connect().expect("connects")
    }
}

fn insert(to: &Connection, key: &[u8], value: &[u8], origin: i64) -> Result<u64> {
    now(to.execute(INSERT, ("kernels", key.to_vec(), value.to_vec(), origin)))
}

fn get(from: &Connection, key: &[u8]) -> Option<Vec<u8>> {
    let mut rows = now(from.query(SELECT, ("kernels", key.to_vec()))).expect("reads");
    now(rows.next()).expect("reads").map(|row| row.get(0).expect("bytes"))
}

fn scan(from: &Connection) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
    let mut rows = now(from.query(SCAN, ("kernels",))).expect("reads");
    std::iter::from_fn(|| now(rows.next()).expect("reads"))
        .map(|row| {
            (row.get(0).expect("bytes"), row.get(1).expect("bytes"), row.get(2).expect("a number"))
        })
        .collect()
}

#[test]
fn the_first_value_stays_but_for_one_that_was_imported() {
    let place = Place::new();
    let one = place.open();
    assert_eq!(insert(&one, b"a", b"local", 0).expect("writes"), 1);
    assert_eq!(insert(&one, b"a", b"later", 0).expect("writes"), 0);
    assert_eq!(insert(&one, b"a", b"imported", 1).expect("writes"), 0);
    assert_eq!(insert(&one, b"b", b"imported", 1).expect("writes"), 1);
    assert_eq!(insert(&one, b"b", b"imported again", 1).expect("writes"), 0);
    assert_eq!(get(&one, b"b").expect("is there"), b"imported");
    assert_eq!(insert(&one, b"b", b"local", 0).expect("writes"), 1);
    let replaced = ("kernels", b"a".to_vec(), b"replaced".to_vec(), 1);
    assert_eq!(now(one.execute(REPLACE, replaced)).expect("writes"), 1);
    let all = [(b"a".to_vec(), b"replaced".to_vec(), 1), (b"b".to_vec(), b"local".to_vec(), 0)];
    assert_eq!(scan(&one), all);
    // A later process finds the same.
    assert_eq!(scan(&place.open()), all);
}

#[test]
fn what_is_removed_is_gone_for_every_process_but_its_writer() {
    let place = Place::new();
    let (one, other, third) = (place.open(), place.open(), place.open());
    for key in [b"a", b"b", b"c"] {
        insert(&one, key, b"value", 0).expect("writes");
    }
    assert_eq!(get(&other, b"b").expect("is there"), b"value");
    assert_eq!(now(other.execute(PURGE_KEY, ("kernels", b"b".to_vec()))).expect("writes"), 1);
    assert_eq!(get(&other, b"b"), None);
    assert_eq!(get(&third, b"b"), None);
    // CubeCL has just written it, and panics without it.
    assert_eq!(get(&one, b"b").expect("is its own"), b"value");
    assert_eq!(now(one.execute(PURGE_KEY, ("kernels", b"b".to_vec()))).expect("writes"), 0);
    assert_eq!(get(&one, b"b"), None);
    let mut rows = now(one.query(SUMMARY, ())).expect("reads");
    let row = now(rows.next()).expect("reads").expect("a namespace");
    let sizes = (row.get::<String>(0), row.get::<i64>(1), row.get::<i64>(2));
    assert_eq!(
        (sizes.0.expect("text"), sizes.1.expect("keys"), sizes.2.expect("bytes")),
        ("kernels".to_owned(), 2, 12)
    );
    assert_eq!(now(one.execute(PURGE, ("kernels",))).expect("writes"), 2);
    assert_eq!(scan(&other), []);
    assert_eq!(scan(&place.open()), []);
    insert(&other, b"b", b"new", 0).expect("writes");
    assert_eq!(get(&one, b"b").expect("is there"), b"new");
}

#[test]
fn a_file_that_is_cut_anywhere_keeps_every_entry_before_the_cut() {
    let place = Place::new();
    let one = place.open();
    let mut ends = vec![fs::metadata(place.file()).expect("is there").len()];
    for number in 0..4u8 {
        insert(&one, &[number], &vec![number; 40 * usize::from(number)], 0).expect("writes");
        ends.push(fs::metadata(place.file()).expect("is there").len());
    }
    let whole = fs::read(place.file()).expect("reads");
    for cut in 0..whole.len() {
        fs::write(place.file(), &whole[..cut]).expect("writes");
        let again = place.open();
        let complete = ends.iter().filter(|end| **end <= cut as u64).count().saturating_sub(1);
        let keys: Vec<Vec<u8>> = scan(&again).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(
            keys,
            (0..complete as u8).map(|key| vec![key]).collect::<Vec<_>>(),
            "cut at {cut}"
        );
        // What is written next is not lost behind the remains.
        insert(&again, b"next", b"value", 0).expect("writes");
        assert_eq!(get(&place.open(), b"next").expect("is there"), b"value", "cut at {cut}");
    }
}

#[test]
fn a_changed_byte_is_never_read_as_a_value() {
    let place = Place::new();
    let one = place.open();
    insert(&one, b"key", b"value", 0).expect("writes");
    let whole = fs::read(place.file()).expect("reads");
    for byte in 16..whole.len() {
        let mut changed = whole.clone();
        changed[byte] ^= 1;
        fs::write(place.file(), &changed).expect("writes");
        // One process has the file open, another opens it now.
        assert_eq!(get(&one, b"key"), None, "byte {byte}");
        assert_eq!(get(&place.open(), b"key"), None, "byte {byte}");
    }
}

#[test]
fn processes_that_write_at_once_lose_nothing() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for writer in 0..8u8 {
            let one = place.open();
            scope.spawn(move || {
                for number in 0..50u8 {
                    insert(&one, &[writer, number], &[writer; 300], 0).expect("writes");
                }
            });
        }
    });
    let all = scan(&place.open());
    assert_eq!(all.len(), 400);
    assert!(all.iter().all(|(key, value, _)| *value == [key[0]; 300]));
}

#[test]
fn what_cannot_be_written_is_found_by_the_process_that_has_it() {
    let place = Place::new();
    insert(&place.open(), b"before", b"value", 0).expect("writes");
    // As where the folder may not be written.
    let read_only = now(place.builder().read_only(true).build()).expect("opens");
    let one = read_only.connect().expect("connects");
    insert(&one, b"key", b"value", 0).expect_err("cannot be written");
    assert_eq!(get(&one, b"key").expect("is kept"), b"value");
    assert_eq!(get(&one, b"before").expect("is there"), b"value");
    assert_eq!(get(&place.open(), b"key"), None);
    assert_eq!(now(one.execute(PURGE_KEY, ("kernels", b"key".to_vec()))).expect("is kept only"), 0);
    assert_eq!(get(&one, b"key"), None);
}

#[test]
fn other_files_and_statements_are_refused_and_left_as_they_are() {
    let place = Place::new();
    assert!(now(place.builder().read_only(true).build()).is_err());
    assert!(!place.file().exists());
    fs::write(place.file(), "SQLite format 3\0 and more").expect("writes");
    for read_only in [false, true] {
        let refused = now(place.builder().read_only(read_only).build()).expect_err("is refused");
        assert_eq!(refused.to_string(), "it is not a file of compiled kernels");
    }
    assert_eq!(fs::read(place.file()).expect("reads"), b"SQLite format 3\0 and more");
    let other = Place::new();
    let error = now(other.open().query("SELECT  *\n FROM notes", ())).expect_err("is refused");
    assert_eq!(
        error.to_string(),
        "the database of kernels does not know the statement `SELECT * FROM notes` with 0 parameters"
    );
}
