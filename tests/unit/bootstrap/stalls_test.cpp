// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/stalls.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

#include "unit/bootstrap/ranks.hpp"

namespace farandole::test {
namespace {

/// Both ends of a connection over the loopback interface.
std::pair<Descriptor, Descriptor> connected() {
  const Descriptor listener = launcher_socket();
  const auto address = numeric_address(local_endpoint(listener.fd()));
  Descriptor client = start_connecting(*address);
  pollfd called{listener.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&called, 1, 60'000), 1);
  return {std::move(client), accept_connection(listener.fd())};
}

void fill(int fd) {
  const std::vector<char> bytes(1 << 16);
  while (send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
}

// Goal: a peer that does not read is no stall, however long; nor are a socket that has nothing to
// send, one that is no TCP socket, and one that was closed.
// Method: fill a connection that nobody reads, and look at it for more than three timeouts, in
// which a stall would be reported with or without an answer of the peer.
TEST(Stalls, AProcessThatDoesNotReadIsNone) {
  Job job = local_job(0, 2, launcher_socket());
  job.timeout = 100ms;
  const Roster roster{"run", {}, {Endpoint{"127.0.0.1", 1}, Endpoint{"127.0.0.1", 1}}};
  Probes probes(job, roster);
  int reports = 0;
  Stalls stalls(job, probes, [&](int, std::uint64_t) { ++reports; });
  const auto full = connected(), idle = connected();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const Descriptor local(pair[0]), other(pair[1]);
  {
    const auto gone = connected();
    stalls.add(gone.first.fd(), 1);
  }
  fill(full.first.fd());
  for (const int fd : {full.first.fd(), idle.first.fd(), local.fd()}) stalls.add(fd, 1);
  const Deadline end = Deadline::after(350ms);
  while (!end.passed()) {
    PollSet set;
    set.wake_by(end.when());
    stalls.watch(set);
    probes.watch(set);
    set.wait();
    probes.serve(set);
    stalls.check();
  }
  EXPECT_EQ(reports, 0);
  for (const int fd : {full.first.fd(), idle.first.fd(), local.fd()}) stalls.remove(fd);
}

}  // namespace
}  // namespace farandole::test
