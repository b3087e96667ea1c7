// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/tcp/connector.hpp"

namespace farandole::tcp {

/// Two ends of one stream: TCP over the loopback interface, both at one address or as hosts apart
/// would be, or a socket pair whose buffers can be made small.
std::pair<int, int> tcp_pair();
std::pair<int, int> far_tcp_pair();
std::pair<int, int> local_pair(int send_buffer_bytes = 0);

/// Test data, which repeats after 64,256 bytes, so that a piece in the place of another is found.
std::vector<std::byte> numbered(std::size_t bytes);

/// The control plane of ranks that are threads of this process: what one opens another accepts.
class SocketHub {
 public:
  using MakePair = std::pair<int, int> (*)();
  explicit SocketHub(MakePair make) : make_(make) {}
  ~SocketHub();

  int open(Rank from, Rank to, std::string_view purpose);
  Result<int> accept(Rank from, Rank to, std::string_view purpose, Deadline deadline);

 private:
  using Key = std::tuple<Rank, Rank, std::string>;
  const MakePair make_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Key, int> waiting_;
};

/// One rank's view of the hub.
class HubConnector final : public Connector {
 public:
  HubConnector(SocketHub& hub, Rank self) : hub_(hub), self_(self) {}
  Result<int> open(Rank peer, std::string_view purpose, Deadline) override {
    return hub_.open(self_, peer, purpose);
  }
  Result<int> accept(Rank peer, std::string_view purpose, Deadline deadline) override {
    return hub_.accept(peer, self_, purpose, deadline);
  }

 private:
  SocketHub& hub_;
  const Rank self_;
};

}  // namespace farandole::tcp
