// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/members.hpp"

#include <algorithm>

namespace farandole::simulation {
namespace {

using namespace std::chrono_literals;
constexpr std::string_view kStalled = "stalled ";
constexpr auto kLeaveTime = 3s;
constexpr int kTurnsMax = 10'000;  // without time passing

}  // namespace

ShippedControlPlane::Member::Member(Job made, const Roster& told, Descriptor socket,
                                    Session::Events heard)
    : job(std::move(made)),
      roster(told),
      listener(std::move(socket), job.secret, 64 + roster.listeners.size()),
      events(std::move(heard)),
      probes(job, roster),
      links(job, roster, probes, events) {}

ShippedControlPlane::ShippedControlPlane(Timetable& timetable, Random& random, Options options,
                                         std::vector<Listener> listeners,
                                         std::function<void(int rank)> started,
                                         std::function<void(int rank)> on_spin)
    : timetable_(timetable),
      on_spin_(std::move(on_spin)),
      listeners_(std::move(listeners)),
      sockets_(timetable, random, options.delay_max, options.rank_count,
               [this](int rank) { wake(rank, timetable_.now()); }),
      roster_{"run", {}, {}} {
  static const Secret secret("the secret of all simulations");
  for (int rank = 0; rank < options.rank_count; ++rank) {
    roster_.listeners.push_back(VirtualSockets::endpoint_of(rank));
  }
  for (int rank = 0; rank < options.rank_count; ++rank) {
    Job job;
    job.rank = Rank{rank};
    job.size = options.rank_count;
    job.secret = secret;
    job.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
    sockets_.run_as(rank);
    members_.push_back(std::make_unique<Member>(
        std::move(job), roster_, Descriptor(sockets_.listen()), events_of(rank, started)));
    members_.back()->links.ready();
    wake(rank, timetable_.now() + random.time(options.delay_max));
  }
}

Session::Events ShippedControlPlane::events_of(int rank, const std::function<void(int)>& started) {
  const Listener& listener = listeners_[static_cast<std::size_t>(rank)];
  return {
      [&listener](const Departure& departure) { listener.departed(departure); },
      [this, rank](Rank from, std::string_view message) { hear(rank, from, message); },
      {},
      [started, rank] { started(rank); },
      [&listener](Rank from, Rank to, std::string_view what) { listener.stalled(from, to, what); }};
}

void ShippedControlPlane::hear(int rank, Rank from, std::string_view message) {
  const Listener& listener = listeners_[static_cast<std::size_t>(rank)];
  if (!message.starts_with(kStalled)) return listener.notice(from, message);
  Reader reader(message.substr(kStalled.size()));
  const Rank sender{reader.i32()};
  listener.stalled(sender, Rank{reader.i32()}, "data");
}

void ShippedControlPlane::flood(int rank, std::string_view message) {
  sockets_.run_as(rank);
  member(rank).links.flood(message);
  wake(rank, timetable_.now());
}

void ShippedControlPlane::leave(int rank, std::string_view state) {
  sockets_.run_as(rank);
  member(rank).links.leave(state);
  member(rank).end = Deadline::after(kLeaveTime);
  wake(rank, timetable_.now());
}

void ShippedControlPlane::kill(int rank) {
  member(rank).dead = true;
  sockets_.kill(rank);
}

void ShippedControlPlane::resume(int rank) {
  member(rank).stopped = false;
  wake(rank, timetable_.now());
}

void ShippedControlPlane::stalled(int reporter, int from, int to) {
  Writer message;
  message.i32(from).i32(to);
  flood(reporter, std::string(kStalled) + message.bytes());
  listeners_[static_cast<std::size_t>(reporter)].stalled(Rank{from}, Rank{to}, "data");
}

bool ShippedControlPlane::ended() const {
  const bool running = std::ranges::any_of(
      members_, [](const auto& each) { return each->end && !each->dead && !each->closed; });
  if (running) return false;
  const bool all_left =
      std::ranges::all_of(members_, [](const auto& each) { return each->dead || each->closed; });
  return !all_left || sockets_.open_count() == 0;
}

void ShippedControlPlane::wake(int rank, Clock::time_point when) {
  if (static_cast<std::size_t>(rank) >= members_.size()) return;
  when = std::max(when, timetable_.now());
  if (!member(rank).turns.insert(when).second) return;
  timetable_.at(when, [this, rank, when] {
    member(rank).turns.erase(when);
    run(rank);
  });
}

void ShippedControlPlane::run(int rank) {
  Member& self = member(rank);
  sockets_.run_as(rank);
  for (int turns = 0; !self.dead && !self.stopped && !self.closed && turn(rank); ++turns) {
    if (turns == kTurnsMax) return on_spin_(rank);
  }
}

farandole::Listener::Admission ShippedControlPlane::admission_of(Member& self) {
  return {[&self](const Identity& visitor) {
            return visitor.purpose == Purpose::kProbe ? Verdict::kNotNow
                                                      : self.links.admit(visitor.rank);
          },
          [&self](const Identity& visitor, Descriptor socket) {
            self.links.enter(visitor.rank, std::move(socket));
          }};
}

/// One turn of the loop; false if nothing was to do.
bool ShippedControlPlane::turn(int rank) {
  Member& self = member(rank);
  PollSet set;
  if (self.end) set.wake_by(self.end->when());
  self.listener.watch(set);
  self.links.watch(set);
  self.probes.watch(set);
  set.wait();
  if (!set.any_ready() && set.wake() > timetable_.now()) {
    // A beat or a question is due then at the latest; earlier turns find the rest.
    if (set.wake() != Clock::time_point::max()) wake(rank, set.wake());
    return false;
  }
  self.probes.serve(set);
  self.links.serve(set);
  self.listener.serve(set, admission_of(self));
  if (!self.links.closed() && !(self.end && self.end->passed())) return true;
  self.links.close();
  self.listener.close();
  self.closed = true;
  return false;
}

}  // namespace farandole::simulation
