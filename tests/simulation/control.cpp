// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "simulation/control.hpp"

namespace farandole::simulation {
namespace {

constexpr std::string_view kStalled = "stalled ";

}  // namespace

QuickControlPlane::QuickControlPlane(Timetable& timetable, Random& random, Options options,
                                     std::vector<Listener> listeners)
    : timetable_(timetable),
      random_(random),
      options_(options),
      listeners_(std::move(listeners)),
      last_due_(static_cast<std::size_t>(options.rank_count * options.rank_count)) {
  for (int rank = 0; rank < options_.rank_count; ++rank) members_.emplace_back(options_.rank_count);
  for (int rank = 0; rank < options_.rank_count; ++rank) {
    for (const int peer : neighbours_of(rank, member(rank).log.gone())) {
      member(rank).links.insert(peer);
    }
  }
}

void QuickControlPlane::flood(int rank, std::string_view message) {
  Member& self = member(rank);
  if (self.cut_off) return;
  const auto frame = self.log.add(Notice{rank, ++self.notices, std::string(message)});
  if (frame) pass_on(rank, *frame);
}

void QuickControlPlane::leave(int rank, std::string_view state) {
  if (member(rank).cut_off) return;
  learn(rank, Departure{Rank{rank}, true, "shut down", std::string(state)});
}

void QuickControlPlane::stalled(int reporter, int from, int to) {
  flood(reporter, std::string(kStalled) + std::to_string(from) + " " + std::to_string(to));
  listeners_[static_cast<std::size_t>(reporter)].stalled(Rank{from}, Rank{to}, "data");
}

void QuickControlPlane::kill(int rank) {
  member(rank).dead = true;
  for (const int peer : member(rank).links) miss(peer, rank, "died");
}

void QuickControlPlane::stop(int rank) {
  member(rank).stopped = true;
  timetable_.after(options_.timeout, [this, rank] {
    if (!member(rank).stopped) return;
    for (const int peer : std::set<int>(member(rank).links)) miss(peer, rank, "went silent");
  });
}

void QuickControlPlane::resume(int rank) {
  Member& self = member(rank);
  self.stopped = false;
  while (!self.unread.empty() && !self.stopped) {
    const auto [from, bytes] = std::move(self.unread.front());
    self.unread.pop_front();
    read(from, rank, bytes);
  }
}

/// The watcher finds out after a while, unless it is gone itself or has heard it from others. What
/// is under way from the lost one comes first, as on a socket.
void QuickControlPlane::miss(int watcher, int lost, const std::string& reason) {
  if (options_.blind) return;
  const auto pair = static_cast<std::size_t>(lost * options_.rank_count + watcher);
  const auto due = timetable_.now() + random_.time(options_.detection_max);
  timetable_.at(std::max(due, last_due_[pair]), [this, watcher, lost, reason] {
    if (member(watcher).dead || member(watcher).cut_off) return;
    learn(watcher, Departure{Rank{lost}, false, reason, ""});
  });
}

void QuickControlPlane::send(int from, int to, const std::string& bytes) {
  if (bytes.empty()) return;
  auto& last = last_due_[static_cast<std::size_t>(from * options_.rank_count + to)];
  last = std::max(last, timetable_.now() + random_.time(options_.delay_max));
  timetable_.at(last, [this, from, to, bytes] { read(from, to, bytes); });
}

void QuickControlPlane::pass_on(int rank, const std::string& frame) {
  for (const int peer : member(rank).links) send(rank, peer, frame);
}

void QuickControlPlane::read(int from, int to, const std::string& bytes) {
  Member& self = member(to);
  if (self.dead || self.cut_off) return;
  if (self.stopped) return self.unread.emplace_back(from, bytes), void();
  FrameReader frames(kControlBytesMax);
  frames.feed(bytes);
  while (const auto frame = frames.next()) understand(from, to, *frame);
}

void QuickControlPlane::understand(int from, int to, const Frame& frame) {
  Member& self = member(to);
  const Listener& listener = listeners_[static_cast<std::size_t>(to)];
  if (frame.type == static_cast<std::uint8_t>(ControlFrame::kDeparture)) {
    const auto departure = decode_departure(frame.payload);
    if (departure->rank != Rank{to}) return learn(to, *departure);
    if (!departure->clean) cut_off(to, *departure);
    return;
  }
  const auto notice = decode_notice(frame.payload);
  const auto fresh = notice->from == to ? std::nullopt : self.log.add(*notice);
  if (!fresh) return;
  pass_on(to, *fresh);
  if (!notice->message.starts_with(kStalled)) {
    return listener.notice(Rank{notice->from}, notice->message);
  }
  char* rest = nullptr;
  const auto sender = std::strtol(notice->message.c_str() + kStalled.size(), &rest, 10);
  const auto receiver = std::strtol(rest, nullptr, 10);
  listener.stalled(Rank{static_cast<int>(sender)}, Rank{static_cast<int>(receiver)}, "data");
  (void)from;
}

void QuickControlPlane::learn(int rank, const Departure& departure) {
  const auto frame = member(rank).log.add(departure);
  if (!frame) return;
  pass_on(rank, *frame);
  if (departure.rank == Rank{rank}) return;
  listeners_[static_cast<std::size_t>(rank)].departed(departure);
  look_for_neighbours(rank);
}

/// The others have given this rank up: to it they are all gone.
void QuickControlPlane::cut_off(int rank, const Departure& by) {
  member(rank).cut_off = true;
  for (int peer = 0; peer < options_.rank_count; ++peer) {
    if (peer == rank || member(rank).log.departure(peer)) continue;
    const Departure departure{Rank{peer}, false, "cut this rank off, which " + by.reason, ""};
    (void)member(rank).log.add(departure);
    listeners_[static_cast<std::size_t>(rank)].departed(departure);
  }
}

void QuickControlPlane::look_for_neighbours(int rank) {
  for (const int peer : neighbours_of(rank, member(rank).log.gone())) {
    if (member(rank).links.contains(peer)) continue;
    timetable_.after(random_.time(options_.detection_max),
                     [this, rank, peer] { link(rank, peer); });
  }
}

/// Both ends tell each other all their log; who calls in vain has missed a death.
void QuickControlPlane::link(int a, int b) {
  if (member(a).dead || member(a).cut_off || member(a).links.contains(b)) return;
  if (member(b).dead) return miss(a, b, "died");
  if (member(b).cut_off) return miss(a, b, "went silent");
  member(a).links.insert(b);
  member(b).links.insert(a);
  send(a, b, member(a).log.replay());
  send(b, a, member(b).log.replay());
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
    if (member(one).stopped) {
      timetable_.after(options_.timeout, [this, one = one, other = other] {
        if (member(one).stopped) miss(other, one, "went silent");
      });
    }
  }
}

}  // namespace farandole::simulation
