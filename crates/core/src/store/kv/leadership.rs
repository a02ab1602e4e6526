//! Identity of the store, terms and nodes.

use async_trait::async_trait;

use super::codec::{decode, readable};
use super::tx::TermRow;
use super::{KeyRange, Keyspace, KvStore, keys};
use crate::error::{Error, ErrorKind};
use crate::model::id::{Incarnation, NodeName, Term};
use crate::store::{LeadershipStore, NodeRow, PAGE_MAX};

#[async_trait]
impl LeadershipStore for KvStore {
    async fn incarnation(&self) -> Result<Incarnation, Error> {
        Ok(self.incarnation_mark().clone())
    }

    async fn begin_term(&self, backend_number: u64, node: &NodeName) -> Result<Term, Error> {
        let node = node.clone();
        self.transact("begin a term", move |tx| {
            let stored: Option<TermRow> = tx.read(Keyspace::Meta, keys::meta::TERM)?;
            let highest = stored.map_or(0, |row| row.term.0).max(backend_number);
            let term = highest.checked_add(1).map(Term).ok_or_else(|| {
                tx.error(ErrorKind::Invalid).with("number of the election backend", backend_number)
            })?;
            tx.store(Keyspace::Meta, keys::meta::TERM.to_vec(), &TermRow { term, node: node.clone() })?;
            Ok(term)
        })
        .await
    }

    async fn current_term(&self) -> Result<Option<(Term, NodeName)>, Error> {
        self.view("read the term", |view| {
            let row: Option<TermRow> = view.read(Keyspace::Meta, keys::meta::TERM)?;
            Ok(row.map(|row| (row.term, row.node)))
        })
        .await
    }

    async fn put_node(&self, node: NodeRow) -> Result<(), Error> {
        self.transact("store a node", move |tx| tx.store(Keyspace::Settings, keys::node(&node.name), &node))
            .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        self.view("list nodes", |view| {
            let rows = view.scan(Keyspace::Settings, &KeyRange::prefix(&[keys::NODE]), PAGE_MAX)?;
            Ok(rows
                .iter()
                .filter_map(|(key, value)| readable(decode(Keyspace::Settings, key, value)))
                .collect())
        })
        .await
    }

    async fn check(&self) -> Result<(), Error> {
        self.transact("write to the store", |tx| {
            // Another value each time: an unchanged row would not be written.
            let number = tx.number(keys::meta::CHECK)?;
            tx.set_number(keys::meta::CHECK, number.wrapping_add(1));
            Ok(())
        })
        .await
    }

    async fn record_metrics(&self) {
        self.record_backend_metrics().await;
    }
}
