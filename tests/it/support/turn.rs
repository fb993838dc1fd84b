//! Homes with an Agent, and running turns in them, on a real database and a real Docker Engine.

use std::path::Path;
use std::sync::Arc;

use bazilion::clock::SystemClock;
use bazilion::coding::Receipt;
use bazilion::coding::command::{self, Answer, Input, Scope};
use bazilion::coding::environment::Config;
use bazilion::coding::output::Redaction;
use bazilion::coding::session::{Admitted, Session};
use bazilion::db::wake::Wakes;
use bazilion::db::{Db, Op, SystemTx, TenantTx};
use bazilion::error::Result;
use bazilion::executor::{Executor, Limits};
use bazilion::identity::Caller;
use bazilion::ids::{
    AgentId, ConversationId, HomeId, IncarnationId, ItemId, LeaseId, OperatorId, ProfileId, TeamId,
    TurnId,
};
use bazilion::turn::{self, Cause, NewTurn, Posture};
use bazilion::workspace::{self, Acquire, LeaseHeld, Liveness, RootIdentity};
use secrecy::SecretString;
use serde_json::json;
use sqlx::PgConnection;
use tokio::sync::{Mutex, broadcast};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::db::TestDb;
use super::docker::Sandbox;

/// A home with one Team and one Agent, arranged from outside.
pub struct Home {
    pub id: HomeId,
    pub team: TeamId,
    pub agent: AgentId,
    pub conversation: ConversationId,
    pub profile: ProfileId,
}

impl Home {
    pub async fn new(root: &mut PgConnection) -> Self {
        let home = Self {
            id: HomeId::new(),
            team: TeamId::new(),
            agent: AgentId::new(),
            conversation: ConversationId::new(),
            profile: ProfileId::new(),
        };
        let slug = format!("h{}", &home.id.uuid().simple().to_string()[20..]);
        let owner = OperatorId::new();
        for sql in [
            "INSERT INTO homes (id, slug, name, created_at) VALUES ($1, $2, 'Home', now())",
            "INSERT INTO home_usage (home_id) SELECT $1 WHERE $2 <> ''",
            "INSERT INTO profiles (home_id, id, slug, name, default_model, created_at)
             VALUES ($1, $3, 'default', 'Default', 'p:m', now())",
        ] {
            let query = sqlx::query(sql).bind(home.id.uuid()).bind(&slug);
            query
                .bind(home.profile.uuid())
                .execute(&mut *root)
                .await
                .unwrap();
        }
        let _ = owner;
        sqlx::query(
            "INSERT INTO teams (home_id, id, slug, name, root_kind, created_at) VALUES ($1, $2, 'default', 'T', 'managed', now())",
        )
        .bind(home.id.uuid())
        .bind(home.team.uuid())
        .execute(&mut *root)
        .await
        .unwrap();
        home.spawn(root, home.agent, "ada", home.conversation).await;
        home
    }

    pub async fn spawn(
        &self,
        root: &mut PgConnection,
        agent: AgentId,
        name: &str,
        conversation: ConversationId,
    ) {
        sqlx::query(
            "WITH a AS (INSERT INTO agents (home_id, id, name, team_id, profile_id, created_at)
                        VALUES ($1, $2, $3, $4, $5, now()))
             INSERT INTO conversations (home_id, id, agent_id, number, created_at) VALUES ($1, $6, $2, 1, now())",
        )
        .bind(self.id.uuid())
        .bind(agent.uuid())
        .bind(name)
        .bind(self.team.uuid())
        .bind(self.profile.uuid())
        .bind(conversation.uuid())
        .execute(root)
        .await
        .unwrap();
    }

    /// The server's own right inside the home.
    pub fn system(&self) -> Caller {
        SystemTx::enter(self.id)
    }
}

/// A process that lives, as far as the database knows.
pub async fn incarnation(root: &mut PgConnection) -> IncarnationId {
    let id = IncarnationId::new();
    sqlx::query(
        "INSERT INTO incarnations (id, node_id, machine_id, boot_id, pid, worker, generation, started_at, lease_until)
         VALUES ($1, $1, 'm', 'b', 1, true, 1, now(), now() + interval '1 hour')",
    )
    .bind(id.uuid())
    .execute(root)
    .await
    .unwrap();
    id
}

/// What is asked for a lease of `path`.
pub fn acquire(home: &Home, incarnation: IncarnationId, path: &Path) -> Acquire {
    Acquire {
        home: home.id,
        lease: LeaseId::new(),
        team: home.team,
        agent: home.agent,
        turn: TurnId::new(),
        executor: "local".into(),
        root: RootIdentity::capture(path).unwrap(),
        incarnation,
        instance: Uuid::nil(),
        generation: 1,
    }
}

/// A running turn that owns its workspace.
pub struct Turn {
    pub session: Arc<Session>,
    pub lease: LeaseHeld,
    calls: std::sync::atomic::AtomicUsize,
}

impl Turn {
    /// Admits and starts a turn in the sandbox's workspace.
    pub async fn start(
        db: &Db,
        home: &Home,
        incarnation: IncarnationId,
        sandbox: &Sandbox,
    ) -> Self {
        Self::start_with(db, home, incarnation, sandbox, &[], Config::default()).await
    }

    pub async fn start_with(
        db: &Db,
        home: &Home,
        incarnation: IncarnationId,
        sandbox: &Sandbox,
        secrets: &[&str],
        defaults: Config,
    ) -> Self {
        let mut asked = acquire(home, incarnation, &sandbox.workspace);
        asked.instance = sandbox.instance;
        let lease = workspace::acquire(db, &asked).await.unwrap();
        record_start(db, home, incarnation, asked.turn, asked.lease)
            .await
            .unwrap();
        let spec = sandbox.spec(bazilion::executor::Kind::Command).await;
        let session = Session {
            db: db.clone(),
            wakes: Wakes::default(),
            executor: sandbox.executor.clone(),
            life: Arc::new(Liveness::new(Arc::new(SystemClock))),
            caller: home.system(),
            incarnation,
            agent: home.agent,
            team: home.team,
            turn: asked.turn,
            lease: lease.clone(),
            admitted: Admitted {
                posture: Posture::Docker,
                image: sandbox.image.clone(),
                engine: sandbox.executor.probe().await.unwrap().id,
                restrictions: Vec::new(),
                user: sandbox.user,
                workspace: spec.workspace,
                mounts: Vec::new(),
                limits: Limits::default(),
                defaults,
                defaults_revision: 0,
                root_identity: "0".repeat(64),
            },
            redaction: Arc::new(Redaction::new(
                &secrets
                    .iter()
                    .map(|s| SecretString::from(*s))
                    .collect::<Vec<_>>(),
            )),
            live: broadcast::channel(64).0,
            prepared: Mutex::default(),
        };
        Self {
            session: Arc::new(session),
            lease,
            calls: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    /// Runs a command with 30 s to go.
    pub async fn run(&self, text: &str) -> Receipt {
        self.run_within(text, 30, &CancellationToken::new()).await
    }

    pub async fn run_within(
        &self,
        text: &str,
        seconds: u64,
        cancelled: &CancellationToken,
    ) -> Receipt {
        let call = format!(
            "call-{}",
            self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst)
        );
        match self.call(&call, text, seconds, cancelled).await.unwrap() {
            Answer::Ran(receipt) => receipt,
            Answer::Repeated(receipt) => panic!("ran before: {receipt:?}"),
        }
    }

    pub async fn call(
        &self,
        call: &str,
        text: &str,
        seconds: u64,
        cancelled: &CancellationToken,
    ) -> Result<Answer> {
        let input =
            json!({"command": text, "cwd": ".", "purpose": "test", "timeoutSeconds": seconds});
        let input = Input::read(input.as_object().unwrap())?;
        command::run(
            &self.session,
            call,
            &input,
            Scope::Complete(None),
            cancelled,
        )
        .await
    }

    /// Ends the turn in order: nothing waits, the lease is released.
    pub async fn end(&self) -> bool {
        self.session.discard().await.unwrap();
        workspace::release(&self.session.db, &self.session.caller, self.lease.id())
            .await
            .unwrap()
    }
}

/// Writes a turn's start record.
pub async fn record_start(
    db: &Db,
    home: &Home,
    incarnation: IncarnationId,
    turn: TurnId,
    lease: LeaseId,
) -> Result<()> {
    let new = NewTurn {
        id: turn,
        agent: home.agent,
        team: home.team,
        conversation: home.conversation,
        cause: Cause::Item(ItemId::new()),
        posture: Posture::Docker,
        lease,
        fence: 1,
        incarnation,
        generation: 1,
        model: "p:m".into(),
        span: None,
    };
    db.transact(
        &home.system(),
        Op::locking("test.start"),
        &new,
        async |tx: &mut TenantTx, new: &NewTurn| turn::start_in(tx, new).await,
    )
    .await
}

/// A database, a home in it, and a living process.
pub async fn arranged() -> (TestDb, Db, Home, IncarnationId) {
    let test = TestDb::new().await;
    let db = test.connect().await.unwrap();
    let mut root = test.superuser().await;
    let home = Home::new(&mut root).await;
    let incarnation = incarnation(&mut root).await;
    (test, db, home, incarnation)
}

/// One number from the database, seen from outside.
pub async fn count(test: &TestDb, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql)
        .fetch_one(&mut test.superuser().await)
        .await
        .unwrap()
}
