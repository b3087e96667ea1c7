// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/session.hpp"
#include "bootstrap/socket.hpp"
#include "farandole/job.hpp"

namespace farandole::test {

/// What a rank of its own process does besides reporting what it hears.
struct Behaviour {
  std::function<void(Job&)> adjust = {};
  /// On the control thread, after the report of a departure.
  std::function<void(const Departure&)> on_departure = {};
  /// After start(), on the main thread. Without it the rank floods "up".
  std::function<void(Session&)> after_start = {};
};

/// One rank in a process of its own. It reports what happens to it in lines:
/// "started", "departed 3 died", "departed 3 shut down", "notice 2 text", "launcher died",
/// "failed: message". It leaves when told to, and is killed with its object or after 60 s.
class RankProcess {
 public:
  RankProcess(Job job, const Behaviour& behaviour);
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void tell_to_leave();
  /// Reads lines until one equals `line`; false at the end of the reports.
  bool expect(const std::string& line);
  /// All lines until the process ends.
  std::vector<std::string> rest();
  /// Lines read so far.
  const std::vector<std::string>& lines() const { return lines_; }
  /// The wait status, once it ended.
  int wait();

 private:
  bool read_line();
  pid_t pid_ = -1;
  bool reaped_ = false;
  Descriptor commands_, reports_;
  std::string buffer_;
  std::vector<std::string> lines_;
};

/// A job with every rank in its own process. The constructor returns once all have started;
/// wait_for_links() once every control socket of the tree is there.
struct ProcessJob {
  explicit ProcessJob(int size, const std::function<Behaviour(int rank)>& behaviour = {});
  RankProcess& operator[](int rank) { return ranks[static_cast<std::size_t>(rank)]; }
  void wait_for_links();
  /// The lines of all ranks, for messages.
  std::string transcript() const;

  std::vector<RankProcess> ranks;
};

}  // namespace farandole::test
