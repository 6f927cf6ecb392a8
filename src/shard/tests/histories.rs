//! Random histories against the model: whatever happens in whatever order, everybody sees what the design says.

use std::collections::{BTreeMap, HashSet, VecDeque};

use proptest::prelude::*;
use serde_json::Value;

use super::{
    bench::{Answer, Bench, START, raw, small_resources, temporary_folder},
    model::{Body, Model, Step, Ttl, Version, name},
};
use crate::{
    model::{epk::EpkRange, ttl::DefaultTtl},
    shard::{
        command::Command,
        facts::ShardFacts,
        feed::{self, Start},
        state::ShardState,
        transaction::Done,
    },
    store::{Batch, Engine, engine::Durability, keys::Position},
};

const KEYS: u8 = 2;
const IDS: u8 = 5;

/// One thing that happens to a shard.
#[derive(Clone, Debug)]
enum Event {
    /// A request is decided; its group is committed later.
    Send {
        key: u8,
        steps: Vec<Step>,
        atomic: bool,
    },
    Default(Ttl),
    Wait(i64),
    /// The purger looks at the lanes; what it finds is committed later.
    StagePurge,
    /// One group is committed.
    Commit,
    /// A group is written, and the actor hears of it only after the next event.
    WriteEarly,
    Settle,
    /// Everything due is purged.
    Purge,
    /// The group under way fails.
    Fail,
    /// The files are opened again; what was not committed is lost.
    Reopen,
    /// A follower of the change feed reads its next page.
    Follow(usize),
}

fn ttl() -> impl Strategy<Value = Ttl> {
    prop_oneof![3 => Just(None), 1 => Just(Some(-1)), 4 => (1i64..8).prop_map(Some)]
}

fn body() -> impl Strategy<Value = Body> {
    // Few values under the unique key, so that they meet; the higher ones belong to one item each.
    (0..IDS, ttl(), 0u8..6, 0i64..1_000).prop_map(|(id, ttl, email, number)| {
        let email = if email < 2 { email } else { 10 + id };
        Body {
            id,
            ttl,
            email,
            number,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => body().prop_map(Step::Create),
        3 => body().prop_map(Step::Upsert),
        2 => body().prop_map(Step::Replace),
        1 => (0..IDS, 0i64..1_000).prop_map(|(id, number)| Step::SetNumber(id, number)),
        1 => (0..IDS, 1i64..8).prop_map(|(id, ttl)| Step::SetTtl(id, ttl)),
        1 => (0..IDS).prop_map(Step::RemoveTtl),
        2 => (0..IDS).prop_map(Step::Delete),
        1 => (0..IDS).prop_map(Step::Read),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let send = (0..KEYS, prop::collection::vec(step(), 1..4), any::<bool>())
        .prop_map(|(key, steps, atomic)| Event::Send { key, steps, atomic });
    prop_oneof![
        10 => send,
        2 => ttl().prop_map(Event::Default),
        5 => (1i64..6).prop_map(Event::Wait),
        4 => Just(Event::StagePurge),
        5 => Just(Event::Commit),
        2 => Just(Event::WriteEarly),
        3 => Just(Event::Settle),
        2 => Just(Event::Purge),
        1 => Just(Event::Fail),
        1 => Just(Event::Reopen),
        2 => (1usize..4).prop_map(Event::Follow),
    ]
}

fn default_ttl(ttl: Ttl) -> DefaultTtl {
    DefaultTtl::from_json(ttl.map(Value::from).as_ref()).expect("a legal default")
}

/// A request that was decided: its answer, and what it must be.
struct Expected {
    answer: Answer,
    statuses: Vec<u16>,
}

/// A reader of the change feed that keeps what it sees, as a cache would.
#[derive(Default)]
struct Follower {
    after: u64,
    last: Option<Position>,
    kept: BTreeMap<(u8, u8), i64>,
}

/// The shard on its bench, and beside it the model: as decided, as in the group under way, as committed.
struct Trial {
    bench: Option<Bench>,
    decided: Model,
    under_way: Option<Model>,
    committed: Model,
    expected: VecDeque<Expected>,
    written: Option<super::bench::Written>,
    /// Etags of versions that a reader once found gone.
    gone: HashSet<String>,
    /// Etags by version, as far as readers have seen them.
    etags: BTreeMap<(u8, u8), (u64, String)>,
    follower: Follower,
}

impl Trial {
    fn new(default: Ttl) -> Self {
        let model = Model::new(default);
        Self {
            bench: Some(Bench::with_unique_keys(default_ttl(default), &["/email"])),
            decided: model.clone(),
            under_way: None,
            committed: model,
            expected: VecDeque::new(),
            written: None,
            gone: HashSet::new(),
            etags: BTreeMap::new(),
            follower: Follower::default(),
        }
    }

    fn bench(&mut self) -> &mut Bench {
        self.bench.as_mut().expect("a trial has a bench")
    }

    fn now(&self) -> i64 {
        self.bench
            .as_ref()
            .expect("a trial has a bench")
            .clock
            .now()
    }

    /// A group goes on its way with everything that was decided so far.
    fn note_group(&mut self) {
        if self.under_way.is_none() && self.bench().is_committing() {
            self.under_way = Some(self.decided.clone());
        }
    }

    fn happen(&mut self, event: Event) {
        let told_late = self.written.take();
        let now = self.now();
        match event {
            Event::Send { key, steps, atomic } => {
                let wants: Vec<_> = steps.iter().map(Step::want).collect();
                let answer = self.bench().send(key, &wants, atomic);
                let statuses = self.decided.perform(key, &steps, atomic, now);
                self.expected.push_back(Expected { answer, statuses });
            }
            Event::Default(ttl) => {
                let answer = self.bench().send_default(default_ttl(ttl));
                self.decided.set_default(ttl, now);
                self.expected.push_back(Expected {
                    answer,
                    statuses: Vec::new(),
                });
            }
            Event::Wait(seconds) => self.bench().wait(seconds),
            Event::StagePurge => self.bench().stage_purge(),
            Event::Follow(items_max) => drop(self.follow(items_max)),
            // What follows needs to know how the group under way ended.
            other => {
                self.tell(told_late);
                return self.happen_to_commits(other);
            }
        }
        if told_late.is_none() {
            self.note_group();
        }
        self.tell(told_late);
    }

    fn happen_to_commits(&mut self, event: Event) {
        match event {
            Event::Commit => {
                let written = self.write();
                self.tell(written);
            }
            Event::WriteEarly => self.written = self.write(),
            Event::Settle => self.settle(),
            Event::Purge => self.purge(),
            Event::Fail if self.bench().is_committing() => {
                self.collect_answers();
                self.bench().fail_commit();
                for mut expected in self.expected.drain(..) {
                    assert!(expected.answer.now().is_err(), "acknowledged, but lost");
                }
                self.under_way = None;
                self.decided = self.committed.clone();
                self.bench().view.set_shortage(None);
            }
            Event::Reopen => {
                let bench = self.bench.take().expect("a trial has a bench");
                self.expected.clear();
                self.under_way = None;
                self.decided = self.committed.clone();
                self.bench = Some(bench.reopen());
            }
            _ => {}
        }
    }

    /// Writes the group under way: from here on readers see it.
    fn write(&mut self) -> Option<super::bench::Written> {
        let written = self.bench().write()?;
        self.committed = self.under_way.take().expect("the model knows of the group");
        Some(written)
    }

    fn tell(&mut self, written: Option<super::bench::Written>) {
        let Some(written) = written else { return };
        self.bench().tell(written);
        self.note_group();
    }

    fn settle(&mut self) {
        while let Some(written) = self.write() {
            self.tell(Some(written));
        }
        self.collect_answers();
        assert!(self.expected.is_empty(), "everybody has an answer");
    }

    fn purge(&mut self) {
        self.settle();
        loop {
            self.bench().stage_purge();
            self.note_group();
            self.settle();
            if !self.bench().shard.purger.more {
                break;
            }
        }
        let now = self.now();
        let live = self
            .committed
            .items
            .values()
            .filter(|version| !self.committed.defaults.is_dead(version, now))
            .count();
        let [documents, feed, own, unique] = self.bench().raw_counts();
        assert_eq!(
            [documents, feed, unique],
            [live; 3],
            "the live ones are left, with all that belongs to them"
        );
        let with_ttl = |version: &&Version| {
            version.body.ttl.is_some_and(|ttl| ttl > 0)
                && !self.committed.defaults.is_dead(version, now)
        };
        assert_eq!(own, self.committed.items.values().filter(with_ttl).count());
    }

    fn collect_answers(&mut self) {
        while let Some(Expected { answer, statuses }) = self.expected.front_mut() {
            let Some(reply) = answer.get() else { break };
            let reply = reply.expect("no commit failed");
            let got: Vec<u16> = reply
                .results
                .iter()
                .map(|result| {
                    result
                        .as_ref()
                        .map_or_else(|error| error.status(), |done: &Done| done.status)
                })
                .collect();
            assert_eq!(got, *statuses);
            self.expected.pop_front();
        }
    }

    /// What a reader may see: committed, and not expired before and after every default that is on its way.
    fn visible(&self) -> Vec<((u8, u8), Version)> {
        let now = self.now();
        let stages: Vec<_> = (self.committed.defaults.len()..=self.decided.defaults.len())
            .map(|len| self.decided.defaults.first(len))
            .collect();
        let alive = |version: &Version| {
            stages
                .iter()
                .any(|defaults| !defaults.is_dead(version, now))
        };
        self.committed
            .items
            .iter()
            .filter(|(_, version)| alive(version))
            .map(|(key, version)| (*key, *version))
            .collect()
    }

    /// Everything that can be read agrees with the model.
    fn check(&mut self, page_items_max: usize, since: i64) {
        self.collect_answers();
        let visible = self.visible();
        let bench = self.bench.as_ref().expect("a trial has a bench");
        for key in 0..KEYS {
            for id in 0..IDS {
                let found = bench.read_in(key, &name(id));
                let version = visible
                    .iter()
                    .find(|(at, _)| *at == (key, id))
                    .map(|(_, version)| version);
                let seen = found
                    .as_ref()
                    .map(|item| (read_body(id, item), item["_ts"].as_i64().expect("a second")));
                assert_eq!(
                    seen,
                    version.map(|version| (version.body, version.ts)),
                    "item {id} of key {key}"
                );
                match found {
                    Some(item) => {
                        let etag = item["_etag"].as_str().expect("an etag").to_owned();
                        assert!(
                            !self.gone.contains(&etag),
                            "item {id} of key {key} came back"
                        );
                        self.etags
                            .insert((key, id), (version.expect("seen").change, etag));
                    }
                    None => {
                        if let Some((_, etag)) = self.etags.remove(&(key, id)) {
                            self.gone.insert(etag);
                        }
                    }
                }
            }
        }
        let in_key_order: Vec<String> = visible.iter().map(|((_, id), _)| name(*id)).collect();
        assert_eq!(bench.listed(page_items_max), in_key_order);
        let mut by_change = visible;
        by_change.sort_by_key(|(_, version)| version.change);
        let names = |versions: &[((u8, u8), Version)]| {
            versions
                .iter()
                .map(|((_, id), _)| name(*id))
                .collect::<Vec<_>>()
        };
        assert_eq!(bench.feed(page_items_max), names(&by_change));
        by_change.retain(|(_, version)| version.ts >= since);
        let page = feed::page(
            &bench.view,
            &EpkRange::full(),
            Start::Time(since),
            100,
            usize::MAX,
        )
        .expect("a page");
        assert_eq!(
            page.items.len(),
            by_change.len(),
            "from second {}",
            since - START
        );
        bench.check_accounts();
    }

    /// Reads the follower's next page; whether there is more.
    fn follow(&mut self, items_max: usize) -> bool {
        let bench = self.bench.as_ref().expect("a trial has a bench");
        let page = feed::page(
            &bench.view,
            &EpkRange::full(),
            Start::After(self.follower.after),
            items_max,
            usize::MAX,
        )
        .expect("a page");
        for stored in &page.items {
            let position = stored.header.position;
            assert!(
                self.follower.last.is_none_or(|last| last < position),
                "changes come in their order"
            );
            self.follower.last = Some(position);
            let item: Value = serde_json::from_slice(stored.body()).expect("JSON");
            let id = item["id"]
                .as_str()
                .and_then(|id| id.strip_prefix("item "))
                .and_then(|id| id.parse().ok())
                .expect("an id");
            // The key is not in the body: the bench gives each its own first byte of the EPK, found by reading.
            let key = (0..KEYS).find(|key| {
                bench
                    .read_in(*key, &name(id))
                    .is_some_and(|found| found["_rid"] == item["_rid"])
            });
            self.follower.kept.insert(
                (key.expect("it is alive"), id),
                item["number"].as_i64().expect("a number"),
            );
        }
        assert!(page.after >= self.follower.after);
        self.follower.after = page.after;
        page.more
    }

    /// At the end the follower has every live item in its last version.
    fn check_follower(&mut self) {
        self.settle();
        while self.follow(2) {}
        for ((key, id), version) in self.visible() {
            assert_eq!(
                self.follower.kept.get(&(key, id)),
                Some(&version.body.number),
                "item {id} of key {key}"
            );
        }
    }
}

fn read_body(id: u8, item: &Value) -> Body {
    Body {
        id,
        ttl: item.get("ttl").map(|ttl| ttl.as_i64().expect("a number")),
        email: u8::try_from(item["email"].as_u64().expect("a number")).expect("small"),
        number: item["number"].as_i64().expect("a number"),
    }
}

/// Applies every command to a fresh engine, in batches as `cut` says.
fn replay(groups: &[Vec<u8>], cut: impl Fn(usize) -> bool) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let folder = temporary_folder();
    let engine = Engine::open(folder.path(), &small_resources()).expect("opens");
    let mut state = ShardState::new(
        ShardFacts::first_ordinal(&super::bench::facts(0, &[])),
        DefaultTtl::Off,
    );
    let mut batch = Batch::default();
    let commands = groups
        .iter()
        .flat_map(|bytes| rmp_serde::from_slice::<Vec<Command>>(bytes).expect("commands"));
    for (number, command) in commands.enumerate() {
        state.apply(&command, &mut batch).expect("applied");
        if cut(number) {
            state.store(&mut batch);
            engine
                .write(std::mem::take(&mut batch), Durability::Buffered)
                .expect("written");
        }
    }
    state.store(&mut batch);
    engine.write(batch, Durability::Buffered).expect("written");
    raw(&engine)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_agrees_with_the_model(
        default in ttl(),
        events in prop::collection::vec(event(), 1..60),
        page_items_max in 1usize..6,
        since in START..START + 60,
    ) {
        let mut trial = Trial::new(default);
        for event in events {
            trial.happen(event);
            trial.check(page_items_max, since);
        }
        let written = trial.written.take();
        trial.tell(written);
        trial.check_follower();
        trial.purge();
        trial.check(page_items_max, since);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_give_the_same_bytes_wherever_and_however_they_are_applied(
        default in ttl(),
        events in prop::collection::vec(event(), 1..60),
        every in 1usize..5,
    ) {
        let mut trial = Trial::new(default);
        for event in events {
            trial.happen(event);
        }
        let groups = std::mem::take(&mut trial.bench().journal);
        let one_by_one = replay(&groups, |_| true);
        prop_assert_eq!(&one_by_one, &replay(&groups, |number| number % every == 0));
        prop_assert_eq!(&one_by_one, &replay(&groups, |_| false));
    }
}
