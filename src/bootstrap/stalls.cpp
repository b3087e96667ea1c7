// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/stalls.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace farandole {
namespace {

constexpr int kLooksPerTimeout = 12;

}  // namespace

Stalls::Stalls(const Job& job, Probes& probes, std::function<void(int, std::uint64_t)> stalled)
    : job_(job),
      probes_(probes),
      stalled_(std::move(stalled)),
      interval_(job.timeout / kLooksPerTimeout),
      due_(Clock::now()) {}

void Stalls::add(int fd, int peer) {
  const std::lock_guard lock(mutex_);
  flows_.insert_or_assign(fd, Flow{peer, Clock::now()});
}

void Stalls::remove(int fd) {
  const std::lock_guard lock(mutex_);
  flows_.erase(fd);
}

void Stalls::watch(PollSet& set) {
  const std::lock_guard lock(mutex_);
  if (!flows_.empty()) set.wake_by(due_);
}

/// If the window is closed, the peer's process does not read, and a window too small for a segment
/// is about to close. In both cases the peer's system answers, or heartbeats find that it does not.
void Stalls::look(int fd, Flow& flow, Clock::time_point now) {
  tcp_info info{};
  socklen_t length = sizeof info;
  const bool known = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
  const bool tells_window = length >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
  const std::uint32_t window = tells_window ? info.tcpi_snd_wnd : info.tcpi_snd_mss;
  const bool sent = info.tcpi_unacked > 0 && window > 0;
  const bool unsent = info.tcpi_notsent_bytes > 0 && window >= info.tcpi_snd_mss;
  const bool waits = known && (sent || unsent);
  if (!waits || info.tcpi_bytes_acked != flow.acknowledged) flow.moved = now;
  flow.acknowledged = info.tcpi_bytes_acked;
  flow.waiting = std::uint64_t{info.tcpi_unacked} * info.tcpi_snd_mss + info.tcpi_notsent_bytes;
}

bool Stalls::is_stalled(const Flow& flow, Clock::time_point now) const {
  const auto reachable = probes_.reachable_since(flow.peer);
  // Probing begins some time after the last progress. If the peer has answered from the first probe
  // on, the time counts from that progress, else from its first answer. Without any answer this
  // waits longer, since heartbeats may tell more.
  const auto start = flow.moved + job_.timeout / 2;
  if (!reachable) return now >= flow.moved + 2 * job_.timeout;
  return now >= (*reachable <= start ? flow.moved : *reachable) + job_.timeout;
}

void Stalls::check() {
  const auto now = Clock::now();
  if (now < due_) return;
  due_ = now + interval_;
  std::vector<std::pair<int, std::uint64_t>> found;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [fd, flow] : flows_) {
      look(fd, flow, now);
      if (now < flow.moved + job_.timeout / 4 || told_.contains(flow.peer)) continue;
      probes_.want(flow.peer);
      if (!is_stalled(flow, now)) continue;
      told_.insert(flow.peer);
      found.emplace_back(flow.peer, flow.waiting);
    }
  }
  for (const auto& [peer, bytes] : found) stalled_(peer, bytes);
}

}  // namespace farandole
