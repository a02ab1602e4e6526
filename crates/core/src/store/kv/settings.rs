//! Queues, the change sequence, and intents.

use async_trait::async_trait;
use bytes::Bytes;

use super::codec::{decode, encode, readable};
use super::tx::{Tx, read_number};
use super::{KeyRange, Keyspace, KvStore, keys};
use crate::error::{Error, ErrorKind};
use crate::model::id::{Term, Version};
use crate::model::queue::Queue;
use crate::store::{BATCH_MAX, Intent, PAGE_MAX, SettingsStore};

#[async_trait]
impl SettingsStore for KvStore {
    async fn queues(&self) -> Result<Vec<Queue>, Error> {
        self.view("list queues", |view| {
            let rows = view.scan(Keyspace::Settings, &KeyRange::prefix(&[keys::QUEUE]), PAGE_MAX)?;
            Ok(rows
                .iter()
                .filter_map(|(key, value)| readable(decode(Keyspace::Settings, key, value)))
                .collect())
        })
        .await
    }

    async fn put_queue(&self, queue: Queue, expect: Option<Version>) -> Result<Queue, Error> {
        self.transact("store a queue", move |tx| put_queue(tx, queue.clone(), expect)).await
    }

    async fn change_seq(&self) -> Result<u64, Error> {
        self.view("read the change sequence", |view| {
            let key = keys::meta::CHANGE_SEQ;
            view.get(Keyspace::Meta, key)?.map_or(Ok(0), |value| read_number(key, &value))
        })
        .await
    }

    async fn put_intent(&self, intent: Intent) -> Result<(), Error> {
        self.transact("store an intent", move |tx| {
            let seq = tx.raise_change_seq()?;
            let wish = encode(&intent)?;
            let by_wish = keys::intent_by_wish(&wish);
            // Who takes an intent reads what it is about afterwards, so one that stands already says it all.
            if tx.has(Keyspace::Settings, &by_wish)? {
                return Ok(());
            }
            tx.put(Keyspace::Settings, by_wish, Bytes::new());
            tx.put(Keyspace::Settings, keys::intent(seq), wish);
            Ok(())
        })
        .await
    }

    async fn take_intents(&self, term: Term, limit: usize) -> Result<Vec<Intent>, Error> {
        let limit = limit.min(BATCH_MAX);
        // Mostly there is none, and then nobody need wait for the writer whose turn it is.
        let is_any = self.view("take intents", move |view| {
            view.fence(term)?;
            Ok(!view.scan(Keyspace::Settings, &KeyRange::prefix(&[keys::INTENT]), 1)?.is_empty())
        });
        if !is_any.await? {
            return Ok(Vec::new());
        }
        self.transact("take intents", move |tx| {
            tx.fence(term)?;
            let rows = tx.stored.scan(Keyspace::Settings, &KeyRange::prefix(&[keys::INTENT]), limit)?;
            let mut taken = Vec::with_capacity(rows.len());
            for (key, _) in rows {
                // Read again as a precondition: who else takes it meanwhile makes this commit fail.
                let Some(value) = tx.get(Keyspace::Settings, &key)? else { continue };
                tx.delete(Keyspace::Settings, keys::intent_by_wish(&value));
                tx.delete(Keyspace::Settings, key.to_vec());
                taken.extend(readable(decode(Keyspace::Settings, &key, &value)));
            }
            Ok(taken)
        })
        .await
    }
}

fn put_queue(tx: &mut Tx<'_>, mut queue: Queue, expect: Option<Version>) -> Result<Queue, Error> {
    let row = keys::queue(&queue.name);
    let stored: Option<Queue> = tx.read(Keyspace::Settings, &row)?;
    queue.version = match (&stored, expect) {
        (None, None) => Version::default().next(),
        (Some(_), None) => return Err(tx.error(ErrorKind::AlreadyExists).with("queue", &queue.name)),
        (Some(stored), Some(expect)) if stored.version == expect => expect.next(),
        (stored, Some(expect)) => {
            let found = stored.as_ref().map_or_else(|| "none".to_owned(), |q| q.version.0.to_string());
            return Err(tx
                .error(ErrorKind::Conflict)
                .with("queue", &queue.name)
                .with("expected version", expect.0)
                .with("found", found));
        }
    };
    tx.store(Keyspace::Settings, row, &queue)?;
    tx.raise_change_seq()?;
    Ok(queue)
}
