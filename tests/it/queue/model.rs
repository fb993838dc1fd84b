//! Thousands of random operations against a small reference that knows only the rules of the specification.
//!
//! The seed is printed. `BAZILION_MODEL_SEED` repeats a run, `BAZILION_MODEL_STEPS` makes it longer.

use bazilion::ids::{AgentId, IncarnationId};
use bazilion::queue::claim::{Claim, Outcome, Start};
use bazilion::queue::control::Verb;
use bazilion::queue::edit::Keep;
use bazilion::queue::hold::Verdict;
use bazilion::queue::{Item, Status, Submission, WaitingFor};

use crate::support::queue::{Home, because};

/// A generator that needs no crate and gives the same numbers everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

/// One Agent's queue as the specification describes it.
struct Reference {
    agent: AgentId,
    /// In position order; only open ones.
    open: Vec<(Item, Status)>,
    granted: bool,
    paused: bool,
    revision: i64,
    asks: bool,
    claim: Option<(Claim, IncarnationId)>,
    last: Option<Submission>,
    ended: usize,
}

impl Reference {
    fn claimable(&self) -> bool {
        let head = self.open.first().map(|(_, status)| *status);
        !self.paused
            && (head == Some(Status::Pending) || (head == Some(Status::Held) && self.granted))
    }

    fn end(&mut self, index: usize) {
        self.open.remove(index);
        self.ended += 1;
        if index == 0 {
            self.granted = false;
        }
    }

    fn status_of_new(&self) -> Status {
        if self.asks {
            Status::Held
        } else {
            Status::Pending
        }
    }
}

struct World {
    home: Home,
    agents: Vec<Reference>,
    processes: [IncarnationId; 2],
    dice: Dice,
}

impl World {
    async fn step(&mut self) {
        let agent = self.dice.below(self.agents.len());
        match self.dice.below(15) {
            0..=3 => self.submit(agent).await,
            4 => self.retry(agent).await,
            5 => self.edit(agent).await,
            6 => self.remove(agent).await,
            7 => self.control(agent).await,
            8 | 9 => self.claim().await,
            10 | 11 => self.work(agent).await,
            12 => self.decide(agent).await,
            13 => self.reconcile(agent).await,
            _ => self.rare(agent).await,
        }
    }

    async fn submit(&mut self, n: usize) {
        let input = self.home.input(self.agents[n].agent, "x", vec![]).await;
        let result = self.home.submit(&input).await;
        let reference = &mut self.agents[n];
        let fits = reference.open.len() < 20;
        assert_eq!(result.is_ok(), fits, "{result:?}");
        if let Ok(item) = result {
            reference.open.push((item, reference.status_of_new()));
            reference.last = Some(input);
        }
    }

    async fn retry(&mut self, n: usize) {
        if let Some(input) = &self.agents[n].last {
            self.home.submit(input).await.unwrap();
        }
    }

    async fn edit(&mut self, n: usize) {
        if self.agents[n].open.is_empty() {
            return;
        }
        let index = self.dice.below(self.agents[n].open.len());
        let (item, status) = self.agents[n].open[index].clone();
        let edit = self
            .home
            .edit_of(&item, Some("edited"), Keep::All, vec![])
            .await;
        let result = self.home.edit(&edit).await;
        assert_eq!(result.is_ok(), status == Status::Pending, "{result:?}");
        if let Ok(new) = result {
            let reference = &mut self.agents[n];
            assert_eq!(new.position, item.position);
            reference.open[index] = (new, reference.status_of_new());
            reference.ended += 1;
        }
    }

    async fn remove(&mut self, n: usize) {
        if self.agents[n].open.is_empty() {
            return;
        }
        let index = self.dice.below(self.agents[n].open.len());
        let (item, status) = self.agents[n].open[index].clone();
        let result = self.home.remove(&item).await;
        assert_eq!(result.is_ok(), status == Status::Pending, "{result:?}");
        if result.is_ok() {
            self.agents[n].end(index);
        }
    }

    async fn control(&mut self, n: usize) {
        let verb = [Verb::Pause, Verb::Resume, Verb::Resume, Verb::Stop][self.dice.below(4)];
        let reference = &mut self.agents[n];
        let uncertain = reference
            .open
            .iter()
            .any(|(_, status)| *status == Status::Uncertain);
        let result = self
            .home
            .control(reference.agent, verb, reference.revision)
            .await;
        assert_eq!(
            result.is_ok(),
            verb != Verb::Resume || !uncertain,
            "{result:?}"
        );
        if let Ok(done) = result {
            reference.revision += 1;
            reference.paused = verb != Verb::Resume;
            assert_eq!(done.control.revision, reference.revision);
            assert_eq!(done.active, verb == Verb::Stop && reference.claim.is_some());
        }
    }

    async fn claim(&mut self) {
        let process = self.processes[self.dice.below(2)];
        let wanted = 1 + self.dice.below(3);
        let ready = self
            .agents
            .iter()
            .filter(|r| r.claimable() && r.claim.is_none())
            .count();
        let claims = self.home.claim(process, wanted).await;
        assert_eq!(claims.len(), ready.min(wanted));
        for claim in claims {
            let reference = self
                .agents
                .iter_mut()
                .find(|r| r.agent == claim.agent)
                .unwrap();
            assert!(reference.claimable() && reference.claim.is_none());
            assert_eq!(
                claim.item, reference.open[0].0.id,
                "the head and nothing else"
            );
            reference.open[0].1 = Status::Claimed;
            reference.claim = Some((claim, process));
        }
    }

    async fn work(&mut self, n: usize) {
        let Some((claim, _)) = self.agents[n].claim else {
            return;
        };
        let choice = self.dice.below(8);
        if self.agents[n].open[0].1 == Status::Claimed && choice < 5 {
            return if choice == 0 {
                self.give_back(n, &claim).await
            } else {
                self.start(n, &claim).await
            };
        }
        let outcome = match choice {
            0..=3 if self.agents[n].open[0].1 == Status::Running => Outcome::Completed,
            4 | 5 => Outcome::Failed(because("x")),
            6 => Outcome::Uncertain(because("x")),
            _ => Outcome::Cancelled(because("x")),
        };
        assert!(self.home.settle(&claim, outcome.clone()).await);
        let reference = &mut self.agents[n];
        reference.claim = None;
        reference.granted = false;
        if matches!(outcome, Outcome::Uncertain(_)) {
            self.lose(n).await;
        } else {
            reference.end(0);
        }
        assert!(!self.home.settle(&claim, outcome).await, "only once");
    }

    async fn give_back(&mut self, n: usize, claim: &Claim) {
        assert!(self.home.give_back(claim, WaitingFor::Workspace).await);
        let reference = &mut self.agents[n];
        reference.claim = None;
        let back = if reference.granted {
            Status::Held
        } else {
            Status::Pending
        };
        reference.open[0].1 = back;
    }

    async fn start(&mut self, n: usize, claim: &Claim) {
        let started = self.home.start(claim).await;
        let reference = &mut self.agents[n];
        if reference.paused {
            assert!(matches!(started, Start::Paused));
            reference.claim = None;
            reference.open[0].1 = if reference.granted {
                Status::Held
            } else {
                Status::Pending
            };
        } else if reference.asks && !reference.granted {
            assert!(matches!(started, Start::Held(_)));
            reference.claim = None;
            reference.open[0].1 = Status::Held;
            let item = self.home.item(&self.agents[n].open[0].0).await;
            self.agents[n].open[0].0 = item;
        } else {
            assert!(matches!(started, Start::Running(_)), "{started:?}");
            reference.open[0].1 = Status::Running;
        }
    }

    async fn decide(&mut self, n: usize) {
        let held: Vec<usize> = (0..self.agents[n].open.len())
            .filter(|i| self.agents[n].open[*i].1 == Status::Held)
            .collect();
        if held.is_empty() {
            return;
        }
        let index = held[self.dice.below(held.len())];
        let approve = self.dice.below(3) > 0;
        let approval = self.agents[n].open[index].0.approval_id.unwrap();
        let verdict = if approve {
            Verdict::Approve
        } else {
            Verdict::Deny
        };
        let result = self.home.decide(approval, verdict).await;
        let reference = &mut self.agents[n];
        let already = index == 0 && reference.granted;
        if approve {
            assert_eq!(
                result.is_ok(),
                index == 0 && !reference.paused && !already,
                "{result:?}"
            );
            reference.granted |= result.is_ok();
        } else {
            assert!(result.is_ok(), "{result:?}");
            reference.end(index);
        }
    }

    async fn reconcile(&mut self, n: usize) {
        let Some((item, status)) = self.agents[n].open.first().cloned() else {
            return;
        };
        let item = self.home.item(&item).await;
        let result = self.home.reconcile(&item).await;
        assert_eq!(result.is_ok(), status == Status::Uncertain, "{result:?}");
        if result.is_ok() {
            self.agents[n].end(0);
        }
    }

    /// The head became uncertain: its queue is paused by one more control write.
    async fn lose(&mut self, n: usize) {
        let reference = &mut self.agents[n];
        reference.open[0].1 = Status::Uncertain;
        reference.claim = None;
        reference.granted = false;
        reference.paused = true;
        reference.revision += 1;
    }

    async fn rare(&mut self, n: usize) {
        match self.dice.below(3) {
            0 => {
                let asks = !self.agents[n].asks;
                let effect = if asks { "approval_required" } else { "allow" };
                self.home
                    .user_edge(self.agents[n].agent, Some(effect))
                    .await;
                self.agents[n].asks = asks;
            }
            1 => {
                let which = self.dice.below(2);
                let dead = std::mem::replace(&mut self.processes[which], self.home.process().await);
                let held: Vec<usize> = (0..self.agents.len())
                    .filter(|i| {
                        self.agents[*i]
                            .claim
                            .is_some_and(|(_, owner)| owner == dead)
                    })
                    .collect();
                assert_eq!(self.home.reap(dead).await, held.len());
                for n in held {
                    self.lose(n).await;
                }
            }
            _ => {}
        }
    }

    async fn compare(&self) {
        for reference in &self.agents {
            let page = self.home.list(reference.agent, Default::default()).await;
            let real: Vec<_> = page
                .items
                .iter()
                .map(|i| (i.id, i.position, i.status))
                .collect();
            let expected: Vec<_> = reference
                .open
                .iter()
                .map(|(i, s)| (i.id, i.position, *s))
                .collect();
            assert_eq!(real, expected);
            assert_eq!(page.totals.history as usize, reference.ended);
            assert_eq!(
                (page.control.paused, page.control.revision),
                (reference.paused, reference.revision)
            );
        }
        self.home.assert_sound().await;
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

#[tokio::test]
async fn random_operations_agree_with_the_reference() {
    let seed = from_env("BAZILION_MODEL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let steps = from_env("BAZILION_MODEL_STEPS").unwrap_or(2_000);
    println!("BAZILION_MODEL_SEED={seed} BAZILION_MODEL_STEPS={steps}");
    let home = Home::new().await;
    let mut agents = vec![];
    for name in ["A", "B", "C"] {
        agents.push(Reference {
            agent: home.agent(name).await,
            open: vec![],
            granted: false,
            paused: false,
            revision: 0,
            asks: false,
            claim: None,
            last: None,
            ended: 0,
        });
    }
    let processes = [home.process().await, home.process().await];
    let mut world = World {
        home,
        agents,
        processes,
        dice: Dice(seed),
    };
    for step in 1..=steps {
        world.step().await;
        if step % 50 == 0 || step == steps {
            world.compare().await;
        }
    }
}
