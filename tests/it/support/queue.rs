//! A home with Agents and their queues, through the product's own operations.

use std::str::FromStr as _;

use bazilion::db::wake::Wakes;
use bazilion::db::{Db, Op, SystemTx, TenantTx};
use bazilion::error::{Error, Result};
use bazilion::identity::{Actor, Caller, Credential, Role, Scopes};
use bazilion::ids::{
    AgentId, ApprovalId, HomeId, IncarnationId, ItemId, OperatorId, ProfileId, RequestId, TeamId,
    TurnId,
};
use bazilion::queue::claim::{self, Claim, GiveBack, Outcome, Settle, Start, Starting};
use bazilion::queue::control::{Command, Controlled, Verb};
use bazilion::queue::edit::{Edit, Expected, Keep, Remove};
use bazilion::queue::hold::{self, Verdict};
use bazilion::queue::look::{Page, Query, View};
use bazilion::queue::{self, Diagnostic, File, Item, Reason, Submission, WaitingFor};
use bazilion::team::agent::NewAgent;
use bazilion::team::profile::NewProfile;
use bazilion::team::{self, Agent, NewTeam, Root, Selection};
use sqlx::postgres::PgConnection;

use super::db::TestDb;

const OP: Op = Op::locking("test");

/// One home of a test database, with a Team, a profile and the person who acts.
pub struct Home {
    pub test: TestDb,
    pub db: Db,
    pub wakes: Wakes,
    pub id: HomeId,
    pub caller: Caller,
}

/// A person of `home` with every right a role gives.
pub fn person(home: HomeId, id: OperatorId, role: Role) -> Caller {
    let actor = Actor::Operator {
        id,
        role,
        scopes: Scopes::ALL,
        credential: Credential::Session,
        instance_admin: false,
    };
    Caller::vouch(home, actor)
}

impl Home {
    /// A fresh database with one home.
    pub async fn new() -> Self {
        Self::with_connections(16).await
    }

    /// The same with so many connections.
    pub async fn with_connections(connections: u32) -> Self {
        let test = TestDb::new().await;
        let db = Db::connect(test.login(), connections, time::Duration::ZERO)
            .await
            .unwrap();
        let mut root = test.superuser().await;
        let (id, caller, _) = add_home(&mut root, &db, "home").await;
        Self {
            test,
            db,
            wakes: Wakes::default(),
            id,
            caller,
        }
    }

    /// Another home in the same database. It shares the connections.
    pub async fn neighbour(&self, slug: &str) -> (HomeId, Caller, TeamId) {
        add_home(&mut self.root().await, &self.db, slug).await
    }

    /// A connection that may do everything.
    pub async fn root(&self) -> PgConnection {
        self.test.superuser().await
    }

    /// The same home seen through a deciding clock that is ahead.
    pub async fn later(&self, ahead: time::Duration) -> Db {
        self.test.connect_at(ahead).await.unwrap()
    }

    /// Spawns an Agent.
    pub async fn agent(&self, name: &str) -> AgentId {
        spawn(&self.db, &self.caller, name).await
    }

    /// Today's selection of an Agent.
    pub async fn selection(&self, agent: AgentId) -> Selection {
        selection(&self.db, &self.caller, agent).await
    }

    /// A submission that fits today's selection.
    pub async fn input(&self, agent: AgentId, text: &str, files: Vec<File>) -> Submission {
        let selection = self.selection(agent).await;
        Submission::new(agent.to_string(), RequestId::new(), selection, text, files).unwrap()
    }

    /// Submits a text.
    pub async fn say(&self, agent: AgentId, text: &str) -> Result<Item> {
        let input = self.input(agent, text, vec![]).await;
        self.submit(&input).await
    }

    /// Submits.
    pub async fn submit(&self, input: &Submission) -> Result<Item> {
        queue::submit(&self.db, &self.wakes, &self.caller, input).await
    }

    /// An edit of what `item` is now.
    pub async fn edit_of(
        &self,
        item: &Item,
        message: Option<&str>,
        keep: Keep,
        files: Vec<File>,
    ) -> Edit {
        let expected = Expected {
            agent: item.agent_id.to_string(),
            item: item.id,
            request_id: RequestId::new(),
            revision: item.revision,
            selection: self.selection(item.agent_id).await,
        };
        Edit::new(expected, message.map(Into::into), keep, files).unwrap()
    }

    /// Edits.
    pub async fn edit(&self, edit: &Edit) -> Result<Item> {
        queue::edit(&self.db, &self.wakes, &self.caller, edit).await
    }

    /// Removes an item as it is in `item`.
    pub async fn remove(&self, item: &Item) -> Result<Item> {
        let remove = Remove {
            agent: item.agent_id.to_string(),
            item: item.id,
            expected_revision: item.revision,
        };
        queue::remove(&self.db, &self.wakes, &self.caller, &remove).await
    }

    /// Pauses, resumes or stops under a control revision.
    pub async fn control(
        &self,
        agent: AgentId,
        verb: Verb,
        expected_revision: i64,
    ) -> Result<Controlled> {
        let command = Command {
            agent: agent.to_string(),
            verb,
            expected_revision,
            reason: Reason::Operator,
        };
        queue::control(&self.db, &self.wakes, &self.caller, &command).await
    }

    /// Closes an uncertain item as it is in `item`.
    pub async fn reconcile(&self, item: &Item) -> Result<Item> {
        let args = queue::control::Reconcile {
            agent: item.agent_id.to_string(),
            item: item.id,
            expected_revision: item.revision,
        };
        queue::reconcile(&self.db, &self.wakes, &self.caller, &args).await
    }

    /// A page of a queue.
    pub async fn list(&self, agent: AgentId, view: View) -> Page {
        let query = Query {
            agent: agent.to_string(),
            view,
            cursor: None,
            offset: None,
            limit: Some(100),
        };
        queue::list(&self.db, &self.caller, &query).await.unwrap()
    }

    /// The open items, in order.
    pub async fn open(&self, agent: AgentId) -> Vec<Item> {
        self.list(agent, View::Open).await.items
    }

    /// An item as it is now.
    pub async fn item(&self, item: &Item) -> Item {
        queue::show(&self.db, &self.caller, &item.agent_id.to_string(), item.id)
            .await
            .unwrap()
    }

    /// Decides an approval.
    pub async fn decide(
        &self,
        approval: ApprovalId,
        verdict: Verdict,
    ) -> Result<bazilion::approval::Approval> {
        hold::decide(&self.db, &self.wakes, &self.caller, approval, verdict).await
    }

    /// Lets the user reach the Agent in this way only, or not at all.
    pub async fn user_edge(&self, agent: AgentId, effect: Option<&str>) {
        let mut root = self.root().await;
        sqlx::query("DELETE FROM policy_edges WHERE source = 'user' AND target_agent_id = $1")
            .bind(agent.uuid())
            .execute(&mut root)
            .await
            .unwrap();
        if let Some(effect) = effect {
            sqlx::query(
                "INSERT INTO policy_edges (home_id, team_id, source, target, target_agent_id, effect)
                 SELECT home_id, team_id, 'user', 'agent', id, $2 FROM agents WHERE id = $1",
            )
            .bind(agent.uuid())
            .bind(effect)
            .execute(&mut root)
            .await
            .unwrap();
        }
    }

    /// A server process that may claim.
    pub async fn process(&self) -> IncarnationId {
        let id = IncarnationId::new();
        sqlx::query(
            "INSERT INTO incarnations (id, node_id, machine_id, boot_id, pid, worker, generation, started_at, lease_until)
             VALUES ($1, $1, 'm', 'b', 1, true, 1, now(), now() + interval '30 s')",
        )
        .bind(id.uuid())
        .execute(&mut self.root().await)
        .await
        .unwrap();
        id
    }

    /// Claims up to `wanted` heads.
    pub async fn claim(&self, owner: IncarnationId, wanted: usize) -> Vec<Claim> {
        claim::claim(&self.db, owner, wanted, None).await.unwrap()
    }

    /// Claims the one head there is.
    pub async fn claim_one(&self, owner: IncarnationId) -> Claim {
        let claims = self.claim(owner, 1).await;
        *claims.first().expect("a head to claim")
    }

    /// Starts a claim under a new turn.
    pub async fn start(&self, claim: &Claim) -> Start {
        let starting = Starting::new(*claim, TurnId::new());
        self.db
            .transact(&claim.caller(), OP, &starting, claim::start)
            .await
            .unwrap()
    }

    /// Claims the one head and starts it.
    pub async fn run_one(&self, owner: IncarnationId) -> Claim {
        let claim = self.claim_one(owner).await;
        assert!(matches!(self.start(&claim).await, Start::Running(_)));
        claim
    }

    /// Gives an unstarted claim back, claimable at once.
    pub async fn give_back(&self, claim: &Claim, waiting_for: WaitingFor) -> bool {
        let args = GiveBack {
            pause: std::time::Duration::ZERO,
            ..GiveBack::new(*claim, waiting_for)
        };
        self.db
            .transact(&claim.caller(), OP, &args, claim::give_back)
            .await
            .unwrap()
    }

    /// Records an outcome; false when the claim was lost.
    pub async fn settle(&self, claim: &Claim, outcome: Outcome) -> bool {
        let args = Settle {
            claim: *claim,
            outcome,
        };
        self.db
            .transact(&claim.caller(), OP, &args, claim::settle)
            .await
            .unwrap()
    }

    /// Declares a process dead, as the reaper does.
    pub async fn reap(&self, process: IncarnationId) -> usize {
        let lost = self
            .db
            .system(
                OP,
                &process,
                async |tx: &mut SystemTx, process: &IncarnationId| {
                    queue::recover::lose(tx, *process).await
                },
            )
            .await
            .unwrap();
        sqlx::query("DELETE FROM incarnations WHERE id = $1")
            .bind(process.uuid())
            .execute(&mut self.root().await)
            .await
            .unwrap();
        lost.agents.len()
    }

    /// Applies the rules of a restore to this home, or to all.
    pub async fn mark_restored(&self, home: Option<HomeId>) -> u64 {
        self.db
            .system(
                OP,
                &home,
                async |tx: &mut SystemTx, home: &Option<HomeId>| {
                    queue::recover::mark_restored(tx, *home).await
                },
            )
            .await
            .unwrap()
    }

    /// Nothing contradicts itself.
    pub async fn assert_sound(&self) {
        assert_sound(&self.db, &self.caller).await;
    }

    /// One number by raw SQL, as superuser.
    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(&mut self.root().await)
            .await
            .unwrap()
    }

    /// Any statement, as superuser.
    pub async fn execute(&self, sql: &'static str) {
        sqlx::query(sql)
            .execute(&mut self.root().await)
            .await
            .unwrap();
    }
}

/// Nothing contradicts itself in the caller's home.
pub async fn assert_sound(db: &Db, caller: &Caller) {
    let found = queue::violations(db, caller).await.unwrap();
    assert!(found.is_empty(), "{found:#?}");
}

/// Spawns an Agent in the Team `t` of the caller's home.
pub async fn spawn(db: &Db, caller: &Caller, name: &str) -> AgentId {
    let id = AgentId::new();
    let new = NewAgent {
        name: name.into(),
        team: "t".into(),
        profile: "p".into(),
        model: None,
        reasoning: None,
    };
    db.transact(caller, OP, &(id, new), team::agent::spawn)
        .await
        .unwrap()
        .id
}

/// Today's selection of an Agent.
pub async fn selection(db: &Db, caller: &Caller, agent: AgentId) -> Selection {
    let agent: Agent = db
        .transact(
            caller,
            OP,
            &agent.to_string(),
            async |tx: &mut TenantTx, named: &String| team::agent::show(tx, named).await,
        )
        .await
        .unwrap()
        .agent;
    agent.selection
}

async fn add_home(root: &mut PgConnection, db: &Db, slug: &str) -> (HomeId, Caller, TeamId) {
    let (id, operator) = (HomeId::new(), OperatorId::new());
    let caller = person(id, operator, Role::Owner);
    sqlx::query("INSERT INTO homes (id, slug, name, created_at) VALUES ($1, $2, $2, now())")
        .bind(id.uuid())
        .bind(slug)
        .execute(&mut *root)
        .await
        .unwrap();
    sqlx::query("INSERT INTO home_usage (home_id) VALUES ($1)")
        .bind(id.uuid())
        .execute(&mut *root)
        .await
        .unwrap();
    sqlx::query("INSERT INTO operators (id, email, name, created_at) VALUES ($1, $2 || '@example.test', $2, now())")
        .bind(operator.uuid())
        .bind(slug)
        .execute(&mut *root)
        .await
        .unwrap();
    let team = TeamId::new();
    let new_team = NewTeam {
        slug: "t".into(),
        name: "T".into(),
        root: Root::Managed,
        executor: None,
    };
    db.transact(&caller, OP, &(team, new_team), team::create)
        .await
        .unwrap();
    let profile = NewProfile {
        slug: "p".into(),
        name: "P".into(),
        default_model: "fake:one".into(),
        reasoning: None,
        persona: Default::default(),
    };
    db.transact(
        &caller,
        OP,
        &(ProfileId::new(), profile),
        team::profile::create,
    )
    .await
    .unwrap();
    (id, caller, team)
}

/// A diagnostic for outcomes.
pub fn because(code: &str) -> Diagnostic {
    Diagnostic::new(code, "As the test says.")
}

/// The wire code of a refusal.
#[track_caller]
pub fn code<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    result.expect_err("a refusal").code().as_str()
}

/// What a refusal carries beside its code.
#[track_caller]
pub fn extra<T: std::fmt::Debug>(result: &Result<T>, key: &str) -> serde_json::Value {
    match result {
        Err(Error::Refused(refusal)) => refusal.extras.get(key).cloned().unwrap_or_default(),
        other => panic!("not a refusal: {other:?}"),
    }
}

/// Parses an id out of an extra.
pub fn item_id(value: &serde_json::Value) -> ItemId {
    ItemId::from_str(value.as_str().unwrap()).unwrap()
}
