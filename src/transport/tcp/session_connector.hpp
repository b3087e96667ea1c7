// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bootstrap/session.hpp"
#include "transport/tcp/connector.hpp"

namespace farandole::tcp {

/// Sockets from the job's control plane, which outlives this object.
class SessionConnector final : public Connector {
 public:
  explicit SessionConnector(Session& session) : session_(session) {}

  Result<int> open(Rank peer, std::string_view purpose, Deadline deadline) override {
    return session_.open(peer, purpose, deadline);
  }
  Result<int> accept(Rank peer, std::string_view purpose, Deadline deadline) override {
    return session_.accept(peer, purpose, deadline);
  }
  void close(int fd) override { session_.close(fd); }

 private:
  Session& session_;
};

}  // namespace farandole::tcp
