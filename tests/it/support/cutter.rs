//! A relay before PostgreSQL that cuts a connection at a chosen request.
//!
//! - A request is what the server answers at once: a simple query (`Q`) or a synchronisation (`S`) with all before it.
//! - Requests of all connections are counted together, from the moment that a cut is armed.

use std::sync::{Arc, Mutex};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Where a request is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never gets it.
    Before,
    /// The server gets it; nobody waits for the answer.
    Sent,
    /// The server has carried it out; its answer is lost.
    AnswerLost,
}

impl Cut {
    pub const ALL: [Cut; 3] = [Cut::Before, Cut::Sent, Cut::AnswerLost];
}

#[derive(Default)]
struct State {
    armed: Option<(Cut, usize)>,
    /// After the cut nobody comes in any more.
    then_away: bool,
    away: bool,
    fired: Option<String>,
    count: usize,
}

/// The relay. Connections go through [`Cutter::options`].
#[derive(Clone)]
pub struct Cutter {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Cutter {
    /// Listens before the server that `behind` names.
    pub async fn before(behind: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cutter = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::default(),
        };
        let (relay, target) = (
            cutter.clone(),
            (behind.get_host().to_owned(), behind.get_port()),
        );
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if relay.state.lock().unwrap().away {
                    continue;
                }
                let server = TcpStream::connect(&target).await.unwrap();
                // Small messages both ways: waiting for more of them costs 40 ms each.
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                relay.clone().relay(client, server);
            }
        });
        cutter
    }

    /// The same way in, through the relay.
    pub fn options(&self, behind: PgConnectOptions) -> PgConnectOptions {
        behind
            .host("127.0.0.1")
            .port(self.port)
            .ssl_mode(sqlx::postgres::PgSslMode::Disable)
    }

    /// Cuts the `nth` request from now on, the first being 1.
    pub fn arm(&self, cut: Cut, nth: usize) {
        *self.state.lock().unwrap() = State {
            armed: Some((cut, nth)),
            ..State::default()
        };
    }

    /// The same, and the database is away from then on, until [`Cutter::disarm`].
    pub fn arm_and_stay_away(&self, cut: Cut, nth: usize) {
        self.arm(cut, nth);
        self.state.lock().unwrap().then_away = true;
    }

    /// Cuts nothing more; the request that was cut, if one was, in the words of the protocol.
    pub fn disarm(&self) -> Option<String> {
        std::mem::take(&mut *self.state.lock().unwrap()).fired
    }

    /// The cut for this request, if it is the one.
    fn next(&self, request: &[u8]) -> Option<Cut> {
        let mut state = self.state.lock().unwrap();
        let (cut, nth) = state.armed?;
        state.count += 1;
        if state.count != nth {
            return None;
        }
        state.fired = Some(String::from_utf8_lossy(request).into_owned());
        state.away = state.then_away;
        Some(cut)
    }

    fn relay(self, client: TcpStream, server: TcpStream) {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (answered, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        // What is still under way to the server when a cut comes is not answered to the client.
        let mute = Arc::new(Mutex::new(false));
        tokio::spawn(answers(
            from_server,
            to_client,
            mute.clone(),
            answered.clone(),
            gone.clone(),
        ));
        tokio::spawn(self.requests(from_client, to_server, mute, answered, gone));
    }

    async fn requests(
        self,
        mut client: OwnedReadHalf,
        mut server: OwnedWriteHalf,
        mute: Arc<Mutex<bool>>,
        answered: Arc<Notify>,
        gone: Arc<Notify>,
    ) {
        let mut request = Vec::new();
        let mut begun = false;
        while let Some(kind) = message(&mut client, begun, &mut request).await {
            // The first message has no kind, and waits for an answer too.
            let complete = !begun || matches!(kind, b'Q' | b'S' | b'p' | b'X');
            begun = true;
            if !complete {
                continue;
            }
            let cut = matches!(kind, b'Q' | b'S')
                .then(|| self.next(&request))
                .flatten();
            match cut {
                None => {}
                Some(Cut::Before) => break,
                Some(cut) => {
                    *mute.lock().unwrap() = true;
                    let _ = server.write_all(&request).await;
                    if cut == Cut::AnswerLost {
                        answered.notified().await;
                    }
                    break;
                }
            }
            if server.write_all(&request).await.is_err() {
                break;
            }
            request.clear();
        }
        gone.notify_one();
    }
}

/// Appends one message of a client; its kind, zero for the first.
async fn message(from: &mut OwnedReadHalf, typed: bool, into: &mut Vec<u8>) -> Option<u8> {
    let kind = match typed {
        true => from.read_u8().await.ok()?,
        false => 0,
    };
    if typed {
        into.push(kind);
    }
    body(from, into).await?;
    Some(kind)
}

async fn body(from: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) -> Option<()> {
    let length = from.read_u32().await.ok()?;
    into.extend(length.to_be_bytes());
    let start = into.len();
    into.resize(start + length as usize - 4, 0);
    from.read_exact(&mut into[start..]).await.ok()?;
    Some(())
}

async fn answers(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mute: Arc<Mutex<bool>>,
    answered: Arc<Notify>,
    gone: Arc<Notify>,
) {
    loop {
        let mut answer = Vec::new();
        let read = async {
            let kind = server.read_u8().await.ok()?;
            answer.push(kind);
            body(&mut server, &mut answer).await.map(|()| kind)
        };
        let kind = tokio::select! {
            kind = read => kind,
            () = gone.notified() => None,
        };
        let Some(kind) = kind else { return };
        if *mute.lock().unwrap() {
            // Ready for the next request: this one is done.
            if kind == b'Z' {
                answered.notify_one();
            }
        } else if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}
