//! The connection to the database is cut at every request of every operation, COMMIT included: afterwards the state is
//! one of two, and what the client is told is true.

use bazilion::approval;
use bazilion::db::Db;
use bazilion::db::wake::Wakes;
use bazilion::error::Result;
use bazilion::ids::{AgentId, IncarnationId};
use bazilion::queue::claim::{Outcome, Start};
use bazilion::queue::control::{Command, Reconcile, Verb};
use bazilion::queue::edit::{Edit, Keep, Remove};
use bazilion::queue::hold::Verdict;
use bazilion::queue::{self, File, Item, Reason, Status, Submission};
use serde_json::{Value, json};

use crate::support::cutter::{Cut, Cutter};
use crate::support::queue::{Home, because, code};

/// A home, the ways to its database, and what is cut.
struct Bed {
    home: Home,
    cutter: Cutter,
    /// Through the relay.
    db: Db,
    process: IncarnationId,
    agents: usize,
}

/// An operation with all that it names, to be sent again as it is.
enum Operation {
    Submit(Box<Submission>),
    Edit(Box<Edit>),
    Remove(Remove),
    Control(Command),
    Reconcile(Reconcile),
    Decide(bazilion::ids::ApprovalId, Verdict),
}

impl Operation {
    /// Carries it out; what it answers, as the wire has it.
    async fn run(&self, db: &Db, home: &Home) -> Result<Value> {
        let (wakes, caller) = (&Wakes::default(), &home.caller);
        let wire = |value: &dyn erased::Wire| value.value();
        Ok(match self {
            Operation::Submit(it) => wire(&queue::submit(db, wakes, caller, it).await?),
            Operation::Edit(it) => wire(&queue::edit(db, wakes, caller, it).await?),
            Operation::Remove(it) => wire(&queue::remove(db, wakes, caller, it).await?),
            Operation::Control(it) => wire(&queue::control(db, wakes, caller, it).await?),
            Operation::Reconcile(it) => wire(&queue::reconcile(db, wakes, caller, it).await?),
            Operation::Decide(id, verdict) => {
                wire(&queue::hold::decide(db, wakes, caller, *id, *verdict).await?)
            }
        })
    }
}

mod erased {
    /// Any answer.
    pub trait Wire {
        fn value(&self) -> serde_json::Value;
    }

    impl<T: serde::Serialize> Wire for T {
        fn value(&self) -> serde_json::Value {
            serde_json::to_value(self).unwrap()
        }
    }
}

/// Everything of an Agent's queue that a person sees.
async fn state(home: &Home, agent: AgentId) -> Value {
    let page = home.list(agent, queue::look::View::All).await;
    let mut approvals = Vec::new();
    for id in page.items.iter().filter_map(|item| item.approval_id) {
        approvals.push(approval::show(&home.db, &home.caller, id).await.unwrap());
    }
    json!({"items": page.items, "control": page.control, "approvals": approvals})
}

impl Bed {
    async fn new() -> Self {
        let home = Home::new().await;
        let cutter = Cutter::before(&home.test.login()).await;
        let options = cutter.options(home.test.login());
        let db = Db::connect(options, 2, time::Duration::ZERO).await.unwrap();
        let process = home.process().await;
        home.execute("UPDATE home_usage SET max_open_items = 10000")
            .await;
        Self {
            home,
            cutter,
            db,
            process,
            agents: 0,
        }
    }

    async fn agent(&mut self) -> AgentId {
        self.agents += 1;
        self.home.agent(&format!("A{}", self.agents)).await
    }

    /// Cuts the operation that `arrange` prepares at each of its requests, in each way; `away`: the database stays away.
    async fn cut_everywhere(&mut self, name: &str, away: bool) {
        let mut commits = 0;
        for cut in Cut::ALL {
            for nth in 1.. {
                let agent = self.agent().await;
                let operation = arrange(name, &self.home, agent, self.process).await;
                // What a cut before took with it is made anew, so that each cut meets the same requests.
                self.db.ping().await.unwrap();
                let before = state(&self.home, agent).await;
                match away {
                    false => self.cutter.arm(cut, nth),
                    true => self.cutter.arm_and_stay_away(cut, nth),
                }
                let told = operation.run(&self.db, &self.home).await;
                let Some(request) = self.cutter.disarm() else {
                    told.unwrap();
                    assert!(nth > 1);
                    break;
                };
                commits += usize::from(request.contains("COMMIT"));
                let what = format!("{name}, {cut:?} at request {nth}: {request:?}");
                if !away {
                    let made_good = told.is_ok();
                    assert!(made_good, "one cut is made good: {what}: {told:?}");
                }
                self.check(&operation, agent, before, told, &what).await;
            }
        }
        assert!(commits > 0, "no COMMIT was cut");
        self.home.assert_sound().await;
    }

    async fn check(
        &self,
        operation: &Operation,
        agent: AgentId,
        before: Value,
        told: Result<Value>,
        what: &str,
    ) {
        self.quiet().await;
        let after = state(&self.home, agent).await;
        match told {
            Ok(answer) => {
                assert_ne!(after, before, "acknowledged and not there: {what}");
                self.repeat_fits(operation, Some(answer), what).await;
            }
            Err(error) => match error.code().as_str() {
                "outcome_unknown" => {
                    let done = (after != before).then_some(Value::Null);
                    self.repeat_fits(operation, done, what).await;
                }
                "not_ready" => {
                    assert_eq!(after, before, "refused and stored: {what}");
                    self.repeat_fits(operation, None, what).await;
                }
                other => panic!("{other}: {what}: {error:?}"),
            },
        }
    }

    /// Sent again as it is: an identity is answered with its receipt; what has none is refused when it was done.
    async fn repeat_fits(&self, operation: &Operation, done: Option<Value>, what: &str) {
        let again = operation.run(&self.home.db, &self.home).await;
        let has_identity = matches!(operation, Operation::Submit(_) | Operation::Edit(_));
        match done {
            Some(answer) if has_identity => {
                let again = again.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                assert!(answer.is_null() || answer == again, "{what}");
            }
            Some(_) => {
                let refused = code(again);
                let conflict = [
                    "item_not_editable",
                    "control_conflict",
                    "item_not_uncertain",
                    "approval_conflict",
                ];
                assert!(conflict.contains(&refused), "{refused}: {what}");
            }
            None => drop(again.unwrap_or_else(|error| panic!("{what}: {error:?}"))),
        }
    }

    /// Whatever a cut connection began has ended.
    async fn quiet(&self) {
        let busy = "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'";
        while self.home.count(busy).await > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// The operation of this name on an Agent of its own, with what it needs.
async fn arrange(name: &str, home: &Home, agent: AgentId, process: IncarnationId) -> Operation {
    let file = || File::new(Some("a.txt".into()), "text/plain", b"bytes".to_vec());
    let control = |verb| {
        let (agent, reason) = (agent.to_string(), Reason::Operator);
        Operation::Control(Command {
            agent,
            verb,
            expected_revision: 0,
            reason,
        })
    };
    let reconcile = |item: &Item| {
        Operation::Reconcile(Reconcile {
            agent: agent.to_string(),
            item: item.id,
            expected_revision: item.revision,
        })
    };
    match name {
        "first" => Operation::Submit(Box::new(home.input(agent, "first", vec![]).await)),
        "files" => Operation::Submit(Box::new(home.input(agent, "files", vec![file()]).await)),
        "plain" => {
            home.say(agent, "before").await.unwrap();
            Operation::Submit(Box::new(home.input(agent, "plain", vec![]).await))
        }
        "held" => {
            home.user_edge(agent, Some("approval_required")).await;
            Operation::Submit(Box::new(home.input(agent, "held", vec![]).await))
        }
        "edit" => {
            let item = home.say(agent, "before").await.unwrap();
            let edit = home
                .edit_of(&item, Some("after"), Keep::All, vec![file()])
                .await;
            Operation::Edit(Box::new(edit))
        }
        "remove" => {
            let item = home.say(agent, "goes").await.unwrap();
            Operation::Remove(Remove {
                agent: agent.to_string(),
                item: item.id,
                expected_revision: item.revision,
            })
        }
        "pause" => control(Verb::Pause),
        "stop" => {
            let item = home.say(agent, "runs").await.unwrap();
            let claim = home.claim(process, 10_000).await;
            let claim = claim.iter().find(|claim| claim.item == item.id).unwrap();
            assert!(matches!(home.start(claim).await, Start::Running(_)));
            control(Verb::Stop)
        }
        "resume" => {
            home.control(agent, Verb::Pause, 0).await.unwrap();
            let Operation::Control(command) = control(Verb::Resume) else {
                unreachable!()
            };
            Operation::Control(Command {
                expected_revision: 1,
                ..command
            })
        }
        "reconcile" => {
            let item = home.say(agent, "uncertain").await.unwrap();
            let claims = home.claim(process, 10_000).await;
            let claim = claims.iter().find(|claim| claim.item == item.id).unwrap();
            assert!(
                home.settle(claim, Outcome::Uncertain(because("lost")))
                    .await
            );
            let now = home.item(&item).await;
            assert_eq!(now.status, Status::Uncertain);
            reconcile(&now)
        }
        "approve" | "deny" => {
            home.user_edge(agent, Some("approval_required")).await;
            let item = home.say(agent, "held").await.unwrap();
            let verdict = if name == "deny" {
                Verdict::Deny
            } else {
                Verdict::Approve
            };
            Operation::Decide(item.approval_id.unwrap(), verdict)
        }
        other => unreachable!("{other}"),
    }
}

async fn cut(names: &[&'static str], away: bool) {
    let mut bed = Bed::new().await;
    for name in names {
        eprintln!("{name}");
        bed.cut_everywhere(name, away).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_survives_a_cut_at_every_request_and_is_stored_once() {
    cut(&["first", "files", "held"], false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_controls_and_decisions_survive_a_cut_at_every_request() {
    cut(
        &[
            "edit",
            "remove",
            "pause",
            "resume",
            "stop",
            "reconcile",
            "approve",
            "deny",
        ],
        false,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_database_away_after_the_cut_the_client_is_told_what_is_known() {
    cut(
        &[
            "first",
            "files",
            "edit",
            "remove",
            "pause",
            "stop",
            "reconcile",
            "deny",
        ],
        true,
    )
    .await;
}
