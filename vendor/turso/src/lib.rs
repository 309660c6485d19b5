//! The part of turso 0.8 that `cubecl-environment` 0.11.3 names, on a file of records.

mod sql;
mod store;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use sql::{FromValue, IntoParams, Value};
use store::Store;

/// What went wrong.
#[derive(Debug, Clone)]
pub enum Error {
    /// Never returned: a writer waits for the one before it.
    Busy(String),
    /// Never returned.
    BusySnapshot(String),
    /// The file could not be read or written: why, and what was done.
    IoError(std::io::ErrorKind, &'static str),
    /// Anything else, in words.
    Error(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(told) | Self::BusySnapshot(told) | Self::Error(told) => {
                formatter.write_str(told)
            }
            Self::IoError(kind, what) => write!(formatter, "{what}: {kind}"),
        }
    }
}

impl std::error::Error for Error {}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Opens a database.
#[derive(Debug)]
pub struct Builder {
    path: PathBuf,
    read_only: bool,
}

impl Builder {
    /// The database of this name. Its file is `<path>.records`.
    pub fn new_local(path: &str) -> Self {
        Self { path: PathBuf::from(format!("{path}.records")), read_only: false }
    }

    /// Several processes may always use one database.
    pub fn experimental_multiprocess_wal(self, _: bool) -> Self {
        self
    }

    /// Space is never given back.
    pub fn experimental_vacuum(self, _: bool) -> Self {
        self
    }

    /// Whether nothing may be written. The file must exist then.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// Opens the file, and makes it where it may be written.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or is not such a file.
    pub async fn build(self) -> Result<Database> {
        let store = Store::open(&self.path, self.read_only)?;
        Ok(Database { store: Arc::new(Mutex::new(store)) })
    }
}

/// An open database.
#[derive(Debug, Clone)]
pub struct Database {
    store: Arc<Mutex<Store>>,
}

impl Database {
    /// A connection to it. All connections share one file handle.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn connect(&self) -> Result<Connection> {
        Ok(Connection { store: Arc::clone(&self.store) })
    }
}

/// What statements are sent through.
#[derive(Debug, Clone)]
pub struct Connection {
    store: Arc<Mutex<Store>>,
}

impl Connection {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A writer waits for as long as it takes.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn busy_timeout(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    /// There are no settings: `row` is not called.
    ///
    /// # Errors
    ///
    /// Never.
    pub async fn pragma_query<F>(&self, _: &str, _: F) -> Result<()>
    where
        F: FnMut(&Row) -> Result<()>,
    {
        Ok(())
    }

    /// Carries out a statement that changes something, and returns the number of rows that it changed.
    ///
    /// # Errors
    ///
    /// When the statement is none of CubeCL's, or the file cannot be written; it is then as it was.
    pub async fn execute(&self, statement: &str, parameters: impl IntoParams) -> Result<u64> {
        sql::execute(&mut self.store(), statement, parameters.into_params())
    }

    /// The rows that a statement finds.
    ///
    /// # Errors
    ///
    /// When the statement is none of CubeCL's, or the file cannot be read.
    pub async fn query(&self, statement: &str, parameters: impl IntoParams) -> Result<Rows> {
        let rows = sql::query(&mut self.store(), statement, parameters.into_params())?;
        Ok(Rows(rows.into_iter()))
    }

    /// Begins a transaction. Every statement takes effect at once and stays: what is written are
    /// entries of a cache, each of which is complete by itself.
    ///
    /// # Errors
    ///
    /// Never.
    pub async fn transaction_with_behavior(
        &mut self,
        _: transaction::TransactionBehavior,
    ) -> Result<transaction::Transaction<'_>> {
        Ok(transaction::Transaction(self))
    }
}

/// Transactions.
pub mod transaction {
    use super::{Connection, Result};

    /// When a transaction locks the database.
    #[derive(Debug, Clone, Copy)]
    pub enum TransactionBehavior {
        /// At its first write.
        Deferred,
        /// When it begins.
        Immediate,
    }

    /// Statements sent one after another.
    #[derive(Debug)]
    pub struct Transaction<'a>(pub(crate) &'a mut Connection);

    impl Transaction<'_> {
        /// Everything has been written already.
        ///
        /// # Errors
        ///
        /// Never.
        pub async fn commit(self) -> Result<()> {
            Ok(())
        }
    }

    impl std::ops::Deref for Transaction<'_> {
        type Target = Connection;

        fn deref(&self) -> &Connection {
            self.0
        }
    }
}

/// The rows that a query found.
#[derive(Debug)]
pub struct Rows(std::vec::IntoIter<Row>);

impl Rows {
    /// The next row.
    ///
    /// # Errors
    ///
    /// Never.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        Ok(self.0.next())
    }
}

/// A row that a query found.
#[derive(Debug)]
pub struct Row(Vec<Value>);

impl Row {
    /// The value in column `index`, from 0.
    ///
    /// # Errors
    ///
    /// When there is no such column, or its value is of another type.
    pub fn get<T: FromValue>(&self, index: usize) -> Result<T> {
        let value = self.0.get(index).and_then(T::from_value);
        value.ok_or_else(|| Error::Error(format!("column {index} is not there or of another type")))
    }
}
