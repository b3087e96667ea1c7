// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/world.hpp"

#include <atomic>
#include <cstdio>
#include <deque>
#include <set>
#include <vector>

#include "engine/engine.hpp"
#include "simulation/call.hpp"
#include "simulation/control.hpp"
#include "simulation/judge.hpp"
#include "simulation/members.hpp"
#include "simulation/random.hpp"
#include "simulation/timetable.hpp"
#include "transport/doorbell.hpp"
#include "transport/sim/sim_transport.hpp"

namespace farandole::simulation {
namespace {

using namespace std::chrono_literals;
constexpr Clock::duration kLookLeast = 100us;
constexpr auto kGoodbyes = 10s;  // a control plane leaves within three seconds
constexpr std::uint64_t kEventsMax = 3'000'000;

/// Bells that nobody hears: an engine in steps never sleeps. One per rank for all seeds.
Doorbell& bell(int rank) {
  struct Bell {
    std::atomic<std::uint32_t> armed{0};
    std::unique_ptr<Doorbell> doorbell;
  };
  static std::deque<Bell> bells;
  while (bells.size() <= static_cast<std::size_t>(rank)) {
    Bell& made = bells.emplace_back();
    made.doorbell = *Doorbell::create(made.armed);
  }
  return *bells[static_cast<std::size_t>(rank)].doorbell;
}

/// A call in flight.
struct Flight {
  const OperationPlan* plan;
  std::size_t index;  // in the scenario
  Clock::time_point submitted;
  std::unique_ptr<Call> call;
  std::shared_ptr<CollectiveOperation> operation;
};

/// One virtual process.
struct Process {
  int rank = 0;
  std::vector<std::shared_ptr<const Group>> groups;  // by the scenario's; none: no member
  std::deque<std::atomic<std::uint32_t>> next_sequence;
  std::vector<bool> freed;
  std::size_t position = 0;                   // in the scenario's operations
  std::optional<Clock::time_point> ready_at;  // to call the one at `position`
  std::vector<Flight> flights;
  std::vector<Flight> ended;          // of the last call on each group, to be repeated
  std::set<Clock::time_point> turns;  // to come
  Clock::time_point look_at{};        // the one of them that comes if nothing else happens
  bool started = false, dead = false, stopped = false, gone = false;
  // Destroyed first, since they refer to what is in flight.
  std::unique_ptr<sim::SimTransport> transport;
  std::unique_ptr<Engine> engine;
};

class World {
 public:
  World(const Scenario& scenario, bool loud)
      : scenario_(scenario),
        loud_(loud),
        random_(scenario.seed ^ 0x5eed),
        judge_(scenario),
        network_({.seed = scenario.seed,
                  .rank_count = scenario.rank_count,
                  .delay_max = scenario.delay_max,
                  .late_max = scenario.late_max,
                  .late_every = scenario.late_every,
                  .overtakes = scenario.overtakes,
                  .wake = [this](Rank to, Clock::time_point due) { wake(to.value(), due); }}) {
    for (int rank = 0; rank < scenario.rank_count; ++rank) add(rank);
    const ControlPlane::Options options{.rank_count = scenario.rank_count,
                                        .delay_max = scenario.control_delay,
                                        .detection_max = scenario.detection,
                                        .timeout = scenario.control_timeout,
                                        .blind = scenario.fault == Fault::kBroken};
    if (!scenario.shipped_control) {
      control_ = std::make_unique<QuickControlPlane>(timetable_, random_, options, listeners());
      for (Process& process : processes_) start(process.rank);
    } else {
      const auto spins = [this](int rank) {
        fail("the control loop of rank " + std::to_string(rank) + " spins");
      };
      control_ = std::make_unique<ShippedControlPlane>(
          timetable_, random_, options, listeners(), [this](int rank) { start(rank); }, spins);
    }
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// After a violation engines have something to end, and tell the control plane.
  ~World() {
    for (Process& each : processes_) each.engine.reset();
  }

  Report run() {
    std::uint64_t events = 0;
    while (report_.violation.empty() && !settled()) {
      if (++events > kEventsMax) fail("the run does not come to its end; " + unfinished());
      if (!timetable_.run_one()) fail("nothing happens any more, and operations are in flight");
    }
    const Clock::time_point end = timetable_.now() + kGoodbyes;
    while (report_.violation.empty() && !control_->ended() && timetable_.run_one()) {
      if (timetable_.now() > end) fail("a control plane does not come to its end");
    }
    if (report_.violation.empty()) look_for_leaks();
    return report_;
  }

 private:
  Process& process(int rank) { return processes_[static_cast<std::size_t>(rank)]; }
  void add(int rank);
  std::vector<ControlPlane::Listener> listeners();
  void say(int rank, const std::string& what);
  void fail(const std::string& what) {
    if (report_.violation.empty()) report_.violation = what;
  }
  void note(std::uint64_t what) { report_.trace = (report_.trace ^ what) * 0x100000001b3; }

  void start(int rank);
  void wake(int rank, Clock::time_point when);
  void turn(Process& process);
  bool call_next(Process& process);
  void submit(Process& process, const OperationPlan& plan);
  bool look_at_flights(Process& process);
  void end(Process& process, Flight& flight);
  void leave(Process& process);
  void shut_down(Process& process);
  bool settled() const;
  std::string unfinished() const;
  void look_for_leaks();

  void begin_fault();
  void kill(int rank);
  void pause(int rank, Clock::duration time);
  void free_group(Process& process);
  void break_connection(int a, int b);

  const Scenario& scenario_;
  const bool loud_;
  Timetable timetable_;
  Random random_;
  Judge judge_;
  sim::Network network_;
  std::deque<Process> processes_;
  std::unique_ptr<ControlPlane> control_;
  int started_ = 0;
  Report report_;
};

void World::add(int rank) {
  Process& made = processes_.emplace_back();
  made.rank = rank;
  made.transport = std::make_unique<sim::SimTransport>(
      Rank{rank}, network_,
      sim::SimTransport::Options{.eager_bytes_max = Bytes{scenario_.eager_bytes},
                                 .piece_max = Bytes{scenario_.piece_bytes},
                                 .pieces_ahead = scenario_.pieces_ahead,
                                 .follows = scenario_.follows,
                                 .late_cancels = scenario_.late_cancels,
                                 .pool = {4, Bytes{scenario_.eager_bytes}}});
  EngineOptions options;
  options.self = Rank{rank};
  options.describe = [](const Signature& signature) {
    return std::string(name(static_cast<Collective>(signature.collective))) + " of " +
           std::to_string(signature.count) + " by number " + std::to_string(signature.algorithm) +
           ", root " + std::to_string(signature.root);
  };
  options.flood = [this, rank](std::string_view message) {
    say(rank, "speaks to all");
    control_->flood(rank, message);
  };
  made.engine = Engine::create_stepped({made.transport.get()}, bell(rank), std::move(options));
  for (const GroupPlan& plan : scenario_.groups) {
    made.next_sequence.emplace_back(0);
    made.freed.push_back(false);
    made.ended.emplace_back();
    std::shared_ptr<Group> group;
    if (plan.contains(rank)) {
      group = std::make_shared<Group>();
      group->communicator = plan.communicator;
      group->self = Rank{plan.rank_of(rank)};
      for (const int member : plan.ranks) {
        group->world_ranks.push_back(Rank{member});
        group->transports.push_back(member == rank ? nullptr : made.transport.get());
      }
      made.engine->joined(*group, made.next_sequence.back());
    }
    made.groups.push_back(std::move(group));
  }
}

std::vector<ControlPlane::Listener> World::listeners() {
  std::vector<ControlPlane::Listener> all;
  for (Process& each : processes_) {
    const int rank = each.rank;
    const auto hear = [this, rank](auto tell) {
      if (process(rank).gone) return;
      tell(*process(rank).engine);
      wake(rank, timetable_.now());
    };
    all.push_back({[=, this](const Departure& departure) {
                     say(rank, "hears that rank " + std::to_string(departure.rank.value()) + " " +
                                   departure.reason);
                     hear([&](Engine& engine) { engine.departed(departure); });
                   },
                   [=, this](Rank from, std::string_view message) {
                     say(rank, "hears words of rank " + std::to_string(from.value()));
                     hear([&](Engine& engine) { engine.notice(from, message); });
                   },
                   [=](Rank from, Rank to, std::string_view what) {
                     hear([&](Engine& engine) { engine.stalled(from, to, what); });
                   }});
  }
  return all;
}

void World::say(int rank, const std::string& what) {
  if (!loud_) return;
  const auto now = timetable_.now().time_since_epoch() - 1h;
  std::printf("%12.6f s  rank %d %s\n", std::chrono::duration<double>(now).count(), rank,
              what.c_str());
}

// A process's turns
// --------------------------------------------------------------------------------

/// All ranks are ready, as far as this one knows.
void World::start(int rank) {
  say(rank, "starts");
  process(rank).started = true;
  wake(rank, timetable_.now());
  if (++started_ == scenario_.rank_count) {
    timetable_.after(scenario_.fault_at, [this] { begin_fault(); });
  }
}

void World::wake(int rank, Clock::time_point when) {
  Process& woken = process(rank);
  when = std::max(when, timetable_.now());
  if (!woken.turns.insert(when).second) return;
  timetable_.at(when, [this, rank, when] {
    Process& self = process(rank);
    self.turns.erase(when);
    turn(self);
  });
}

void World::turn(Process& self) {
  if (!self.started || self.dead || self.stopped || self.gone) return;
  note(static_cast<std::uint64_t>(timetable_.now().time_since_epoch().count()) * 67 +
       static_cast<std::uint64_t>(self.rank));
  Clock::duration quiet{};
  do {
    while (call_next(self)) {
    }
    quiet = self.engine->turn();
  } while (look_at_flights(self) && !self.gone);
  if (self.gone) return;
  if (self.position == scenario_.operations.size() && self.flights.empty()) return leave(self);
  const Clock::time_point look_at = timetable_.now() + std::max(quiet, kLookLeast);
  if (self.look_at <= timetable_.now() || self.look_at > look_at) {
    self.look_at = look_at;
    wake(self.rank, look_at);
  }
  if (self.ready_at) wake(self.rank, *self.ready_at);
}

/// Calls the next operation of the program if it is time for it; true if the program went on.
bool World::call_next(Process& self) {
  if (self.position == scenario_.operations.size()) return false;
  const OperationPlan& plan = scenario_.operations[self.position];
  if (self.groups[plan.group] == nullptr || self.freed[plan.group]) {
    self.ready_at.reset();
    ++self.position;
    return true;
  }
  if (static_cast<int>(self.flights.size()) >= scenario_.window) return false;
  const auto rank = static_cast<std::size_t>(self.rank);
  if (!self.ready_at) self.ready_at = timetable_.now() + plan.think[rank];
  if (*self.ready_at > timetable_.now()) return false;
  self.ready_at.reset();
  submit(self, plan);
  ++self.position;
  return true;
}

void World::submit(Process& self, const OperationPlan& plan) {
  const std::shared_ptr<const Group>& group = self.groups[plan.group];
  const std::uint32_t sequence = self.next_sequence[plan.group].fetch_add(1);
  if (plan.excused == self.rank) {
    say(self.rank, "cannot start operation " + std::to_string(sequence));
    judge_.note_fault(timetable_.now());
    return self.engine->excuse(*group, sequence, Error{ErrorKind::kInternal, "no room"});
  }
  const bool differs = std::ranges::find(plan.differing, self.rank) != plan.differing.end();
  const CallPlan& called = differs ? *plan.otherwise : plan.call;
  const OperationId id{group->communicator, sequence};
  Flight flight{&plan, self.position, timetable_.now(), {}, {}};
  Flight& before = self.ended[plan.group];
  if (plan.repeats && before.operation != nullptr && before.call->plan() == called) {
    // As the front end does with a call like one before; the values are the same.
    flight.call = std::move(before.call);
    flight.operation = std::move(before.operation);
    flight.call->reset();
    flight.operation->renew(flight.call->in(), flight.call->out(), "", Ticks::now(), {});
    flight.operation->set_id(id);
  } else {
    const std::size_t number = plan.group * 1000 + (differs ? 1 : 0);
    flight.call = std::make_unique<Call>(called, number, group->self.value(), group->size());
    flight.operation = flight.call->operation({group, "", {}, scenario_.timeout, Ticks::now()}, id);
  }
  if (scenario_.fault == Fault::kLate) judge_.note_fault(timetable_.now());
  say(self.rank, "calls " + describe(called) + ", operation " + std::to_string(sequence) +
                     " of group " + std::to_string(plan.group));
  self.engine->submit(flight.operation, true);
  self.flights.push_back(std::move(flight));
}

/// True if a call has ended, so that the program may go on.
bool World::look_at_flights(Process& self) {
  bool any = false;
  for (std::size_t i = 0; i < self.flights.size() && !self.gone;) {
    Flight& flight = self.flights[i];
    if (flight.operation->finished()) {
      Flight done = std::move(flight);
      self.flights.erase(self.flights.begin() + static_cast<std::ptrdiff_t>(i));
      end(self, done);
      any = true;
      continue;
    }
    if (timetable_.now() > judge_.limit(*flight.plan, self.rank, flight.submitted)) {
      fail("rank " + std::to_string(self.rank) + " hangs in " + flight.operation->state());
    }
    ++i;
  }
  return any;
}

void World::end(Process& self, Flight& flight) {
  const Result<void>& outcome = flight.operation->outcome();
  const std::string what = flight.operation->description();
  say(self.rank, "ends " + what + ": " + (outcome ? "well" : outcome.error().message));
  ++report_.operations;
  report_.failures += outcome ? 0 : 1;
  note(flight.index * 8 + (outcome ? 7 : static_cast<std::uint64_t>(outcome.error().kind)));
  std::string wrong = outcome ? flight.call->wrong() : flight.call->damage();
  if (wrong.empty()) {
    wrong = judge_.outcome(*flight.plan, self.rank, outcome, flight.submitted, timetable_.now());
  }
  if (wrong.empty() && flight.operation.use_count() != 1) wrong = "is still held by its engine";
  if (!wrong.empty()) {
    fail("rank " + std::to_string(self.rank) + ", " + what + " (" + describe(flight.call->plan()) +
         "): " + wrong + (outcome ? "" : "; the error: " + outcome.error().message));
  }
  const bool quits = !outcome && scenario_.quits && outcome.error().kind != ErrorKind::kMismatch;
  if (outcome) self.ended[flight.plan->group] = std::move(flight);
  if (quits) leave(self);
}

/// The process shuts its library down: what is in flight ends, and the others hear what is done.
void World::leave(Process& self) {
  if (self.gone) return;
  say(self.rank, "leaves");
  judge_.left(self.rank);
  if (!self.flights.empty()) judge_.note_fault(timetable_.now());
  shut_down(self);
  FinalState words;
  for (std::size_t i = 0; i < self.groups.size(); ++i) {
    if (self.groups[i] == nullptr) continue;
    words.next_sequence[self.groups[i]->communicator] = self.next_sequence[i].load();
  }
  words.limit(self.engine->withdrawn());
  control_->leave(self.rank, encode(words));
}

void World::shut_down(Process& self) {
  self.gone = true;
  self.engine->abort(Error{ErrorKind::kInternal, "shut down"});
  for (int i = 0; i < 10; ++i) (void)self.engine->turn();
  for (const Flight& flight : self.flights) {
    const std::string damage = flight.call->damage();
    if (!flight.operation->finished()) fail("an aborted operation does not end");
    if (flight.operation.use_count() != 1) fail("an aborted operation is still held");
    if (!damage.empty()) fail(damage);
  }
  self.flights.clear();
  self.engine->stop();
  if (!self.transport->idle()) fail("a transport still holds transfers of a process that left");
}

bool World::settled() const {
  return std::ranges::all_of(processes_, [](const Process& each) {
    return each.dead || each.gone || (each.stopped && each.turns.empty());
  });
}

std::string World::unfinished() const {
  const auto now = std::chrono::duration<double>(timetable_.now().time_since_epoch() - 1h);
  std::string text = "at " + std::to_string(now.count()) + " s ";
  for (const Process& each : processes_) {
    if (each.dead || each.gone) continue;
    text += "rank " + std::to_string(each.rank) + " is at operation " +
            std::to_string(each.position) + " of " + std::to_string(scenario_.operations.size()) +
            ", in flight " + std::to_string(each.flights.size()) + "; ";
  }
  return text;
}

void World::look_for_leaks() {
  for (Process& each : processes_) {
    each.engine.reset();
    each.transport.reset();
    network_.kill(Rank{each.rank});
  }
  if (network_.in_use() != 0) {
    fail(std::to_string(network_.in_use()) + " parcels were neither delivered nor released");
  }
}

// Faults
// -------------------------------------------------------------------------------------------

void World::begin_fault() {
  const auto& victims = scenario_.victims;
  switch (scenario_.fault) {
    case Fault::kMixed: {
      const Clock::time_point until = timetable_.now() + scenario_.fault_time;
      network_.cut(Rank{scenario_.outage[0]}, Rank{scenario_.outage[1]}, until);
      [[fallthrough]];
    }
    case Fault::kDeath:
      for (const int victim : victims) {
        timetable_.after(random_.time(random_.chance(50) ? 0ns : 300ms),
                         [this, victim] { kill(victim); });
      }
      break;
    case Fault::kPause:
    case Fault::kSilence:
      return pause(victims[0], scenario_.fault_time);
    case Fault::kFreed:
      return free_group(process(victims[0]));
    case Fault::kOutage:
      for (int peer = 0; peer < scenario_.rank_count; ++peer) {
        if (peer == victims[0] || random_.chance(30)) continue;
        const Clock::time_point until = timetable_.now() + scenario_.fault_time;
        network_.cut(Rank{victims[0]}, Rank{peer}, until);
        if (random_.chance(70)) network_.cut(Rank{peer}, Rank{victims[0]}, until);
      }
      break;
    case Fault::kStall:
      judge_.note_fault(timetable_.now());
      network_.cut(Rank{victims[0]}, Rank{victims[1]}, Clock::time_point::max());
      timetable_.after(random_.time(scenario_.control_timeout), [this, &victims] {
        if (process(victims[0]).gone || process(victims[1]).gone) return;
        judge_.stall_reported(timetable_.now());
        control_->stalled(victims[0], victims[0], victims[1]);
      });
      break;
    case Fault::kBroken:
      return break_connection(victims[0], victims[1]);
    default:
      break;
  }
}

void World::kill(int rank) {
  Process& victim = process(rank);
  if (victim.dead || victim.gone) return;
  say(rank, "dies");
  victim.dead = true;
  judge_.lost(rank, timetable_.now());
  network_.kill(Rank{rank});
  control_->kill(rank);
}

void World::pause(int rank, Clock::duration time) {
  Process& victim = process(rank);
  if (victim.gone) return;
  say(rank, "stands still");
  victim.stopped = true;
  control_->stop(rank);
  if (scenario_.fault == Fault::kSilence) {
    timetable_.after(scenario_.control_timeout,
                     [this, rank] { judge_.lost(rank, timetable_.now()); });
  }
  if (time > 1h) return;
  timetable_.after(time, [this, rank] {
    say(rank, "goes on");
    judge_.note_fault(timetable_.now());
    process(rank).stopped = false;
    wake(rank, timetable_.now());
    control_->resume(rank);
  });
}

void World::free_group(Process& self) {
  const std::size_t freed = *scenario_.freed_group;
  const bool busy = std::ranges::any_of(
      self.flights, [&](const Flight& flight) { return flight.plan->group == freed; });
  if (self.gone) return;
  if (busy) return timetable_.after(1ms, [this, &self] { free_group(self); });
  say(self.rank, "frees group " + std::to_string(freed));
  self.freed[freed] = true;
  judge_.left(self.rank);
  judge_.note_fault(timetable_.now());
  self.engine->left(*self.groups[freed]);
  wake(self.rank, timetable_.now());
}

/// Both ends notice, as sockets do; nobody has died.
void World::break_connection(int a, int b) {
  judge_.note_fault(timetable_.now());
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    Process& self = process(one);
    if (self.gone) continue;
    self.transport->break_connection(Rank{other});
    self.engine->suspect(Rank{other});
    wake(one, timetable_.now());
  }
}

}  // namespace

Report run(const Scenario& scenario, bool loud) {
  return World(scenario, loud).run();
}

}  // namespace farandole::simulation
