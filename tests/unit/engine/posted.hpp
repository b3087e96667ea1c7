// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace farandole {

/// Keeps what is posted, and moves nothing: tests end the transfers.
class Posted final : public Transport {
 public:
  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override { return {}; }
  Result<void> add_peer(const Member&, Deadline) override { return {}; }
  Result<void> connect(std::span<const Rank>, Deadline) override { return {}; }
  void post(Send& send) override { transfers.push_back(&send); }
  void post(Receive& receive) override {
    transfers.push_back(&receive);
    receives.push_back(&receive);
  }
  bool progress() override { return false; }
  bool cancel(OperationId) override { return true; }
  void peer_failed(Rank) override {}

  /// The transfer with a peer is lost.
  void lose(Rank peer) {
    for (Transfer* transfer : transfers) {
      if (transfer->peer == peer) transfer->fail(ErrorKind::kRankFailed);
    }
  }

  std::vector<Transfer*> transfers;
  std::vector<Receive*> receives;  // of these

 private:
  Capabilities capabilities_{.name = "posted"};
};

}  // namespace farandole
