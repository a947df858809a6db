//! Messages for the model: figures, keys, and answers of the admin interface.

use std::rc::Rc;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use super::act::TopAsk;
use super::model::TopMessage;
use super::tables::TopTable;
use crate::ctl::client::events::{IDLE_TIMEOUT, WatchStream};
use crate::ctl::client::{AdminClient, AdminRequest};
use crate::ctl::segment;
use crate::failure::Failure;

/// Number of messages that may wait for the model.
const WAITING: usize = 1024;
/// Delays between attempts to connect: the first one, doubled until the last one.
const DELAYS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// Time for an answer to a key, or for a page of connections.
const ANSWER: Duration = Duration::from_secs(15);
/// Interval of the table of connections.
const CONNECTIONS: Duration = Duration::from_secs(2);
/// Number of connections on a page, and of pages that are asked for.
const PAGES: (usize, usize) = (1_000, 5);

/// Tasks that read figures, keys and answers, and send them to the model.
pub(super) struct TopFeed {
    client: Rc<AdminClient>,
    outbox: Sender<TopMessage>,
    /// The task for the table that is asked for apart.
    apart: Option<(TopTable, JoinHandle<()>)>,
}

impl TopFeed {
    /// Starts to read figures, and returns where messages arrive. It needs a `LocalSet`.
    pub(super) fn start(client: Rc<AdminClient>, interval: &'static str) -> (Self, Receiver<TopMessage>) {
        let (outbox, inbox) = channel(WAITING);
        let path = format!("/figures?every={interval}");
        spawn_local(figures(Rc::clone(&client), path, outbox.clone()));
        (Self { client, outbox, apart: None }, inbox)
    }

    /// Reads keys in a thread of its own, since a terminal cannot be read with a timeout on every system.
    pub(super) fn read_keys(&self) {
        let outbox = self.outbox.clone();
        std::thread::spawn(move || {
            loop {
                let message = match event::read() {
                    Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => TopMessage::Key(key),
                    Ok(Event::Resize(..)) => TopMessage::Resize,
                    Ok(_) => continue,
                    Err(_) => return,
                };
                if outbox.blocking_send(message).is_err() {
                    return;
                }
            }
        });
    }

    /// Asks, and passes on the answer.
    pub(super) fn ask(&self, ask: TopAsk) {
        let (client, outbox) = (Rc::clone(&self.client), self.outbox.clone());
        spawn_local(async move {
            let answer = client.fetch(&ask.request(), ANSWER).await.map_err(|failure| said(&failure));
            let _ = outbox.send(TopMessage::Answer(ask, answer)).await;
        });
    }

    /// Asks for the rows of this table as long as it is wanted.
    pub(super) fn want(&mut self, table: Option<TopTable>) {
        if self.apart.as_ref().map(|(table, _)| *table) == table {
            return;
        }
        if let Some((_, task)) = self.apart.take() {
            task.abort();
        }
        let (client, outbox) = (Rc::clone(&self.client), self.outbox.clone());
        self.apart = match table {
            Some(TopTable::Connections) => {
                Some((TopTable::Connections, spawn_local(connections(client, outbox))))
            }
            Some(TopTable::Requests) => Some((TopTable::Requests, spawn_local(requests(client, outbox)))),
            _ => None,
        };
    }
}

/// The first line of a failure, without the word that begins it.
fn said(failure: &Failure) -> String {
    let text = failure.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Delay before the next attempt.
struct Backoff(Duration);

impl Backoff {
    fn new() -> Self {
        Self(DELAYS.0)
    }

    async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(DELAYS.1);
    }
}

/// Passes figures on until the model is gone. A stream ends after some minutes, at an upgrade, and with Offramp.
async fn figures(client: Rc<AdminClient>, path: String, outbox: Sender<TopMessage>) {
    let mut delay = Backoff::new();
    while !outbox.is_closed() {
        let outcome = follow(&client, &path, &mut |kind, data| {
            if kind == "figures" {
                // A model that is too slow needs the next figures, not these.
                let _ = outbox.try_send(TopMessage::Figures(data));
            }
        })
        .await;
        match outcome {
            // It ended in order, and the next one follows.
            Ok(()) => delay = Backoff::new(),
            Err(failure) => drop(outbox.send(TopMessage::Away(said(&failure))).await),
        }
        delay.wait().await;
    }
}

/// Passes the requests that end on, after the latest ones.
async fn requests(client: Rc<AdminClient>, outbox: Sender<TopMessage>) {
    let mut delay = Backoff::new();
    loop {
        let outcome = follow(&client, "/logs/tail", &mut |kind, data| {
            let message = match kind {
                "request" => TopMessage::Request(data),
                "lost" => TopMessage::Lost(data["lost"].as_u64().unwrap_or_default()),
                _ => return,
            };
            if outbox.try_send(message).is_err() {
                // The count is exact only if there is room for it, which is so once the model goes on.
                let _ = outbox.try_send(TopMessage::Lost(1));
            }
        })
        .await;
        match outcome {
            Ok(()) => delay = Backoff::new(),
            Err(failure) => {
                let _ = outbox.send(TopMessage::Missing(TopTable::Requests, said(&failure))).await;
            }
        }
        delay.wait().await;
    }
}

/// Passes the events of one stream on until it ends.
async fn follow(client: &AdminClient, path: &str, each: &mut dyn FnMut(&str, Value)) -> Result<(), Failure> {
    let body = client.open(&AdminRequest::new("GET", path)).await?;
    let mut pass = |kind: &str, data: Value| {
        each(kind, data);
        Ok(true)
    };
    WatchStream::after(None).read(body, IDLE_TIMEOUT, &mut pass).await.map(drop)
}

/// Passes the open connections on, again and again.
async fn connections(client: Rc<AdminClient>, outbox: Sender<TopMessage>) {
    loop {
        let message = match pages(&client).await {
            Ok((rows, more)) => TopMessage::Connections(rows, more),
            Err(failure) => TopMessage::Missing(TopTable::Connections, said(&failure)),
        };
        if outbox.send(message).await.is_err() {
            return;
        }
        sleep(CONNECTIONS).await;
    }
}

/// Asks for the pages of connections, and returns whether there are more.
async fn pages(client: &AdminClient) -> Result<(Vec<Value>, bool), Failure> {
    let (size, most) = PAGES;
    let (mut rows, mut after) = (Vec::new(), String::new());
    for _ in 0..most {
        let request = AdminRequest::new("GET", &format!("/connections?limit={size}{after}"));
        let mut page = client.fetch(&request, ANSWER).await?;
        if let Value::Array(found) = page["connections"].take() {
            rows.extend(found);
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", segment(next)),
            None => return Ok((rows, false)),
        }
    }
    Ok((rows, true))
}
