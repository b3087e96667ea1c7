// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "farandole/result.hpp"
#include "farandole/types.hpp"

namespace farandole::tcp {

/// Where the transport's sockets come from: the control plane, or a test.
///
/// Gives fresh, connected, authenticated stream sockets, which the caller ends with close(). A
/// socket that one rank opens, the other receives from accept() with the same purpose.
///
/// Threads   both from any thread.
/// Blocking  both block up to the deadline. open() does not wait for the peer's accept().
/// Errors    kTimedOut or kRankFailed naming the peer, kUnsupported if it cannot be reached.
class Connector {
 public:
  virtual ~Connector() = default;
  virtual Result<int> open(Rank peer, std::string_view purpose, Deadline deadline) = 0;
  virtual Result<int> accept(Rank peer, std::string_view purpose, Deadline deadline) = 0;
  /// Closes a socket that open() or accept() gave.
  virtual void close(int fd) { ::close(fd); }
  void close_all(const std::vector<int>& sockets) {
    for (const int fd : sockets) close(fd);
  }
};

}  // namespace farandole::tcp
