// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <deque>

#include "conformance/harness.hpp"
#include "transport/row.hpp"
#include "transport/sim/sim_transport.hpp"

// The simulated network in real time: without delays, since nobody rings a bell when one ends.
namespace farandole::conformance {
namespace {

class SimFabric : public Fabric {
 public:
  explicit SimFabric(int rank_count)
      : network_({.seed = 7,
                  .rank_count = rank_count,
                  .reserve = 1000,
                  .wake = [this](Rank to, Clock::time_point) { ring(to); }}),
        options_{.pieces_ahead = 64, .late_cancels = 2, .pool = {}} {}

  Result<void> add(int rank) {
    ThreadRank& made = ranks_.emplace_back();
    auto memory = Memory::create(Bytes{std::size_t{1} << 30});
    if (!memory) return memory.error();
    made.memory = *std::move(memory);
    auto* armed = new (made.memory->header()) std::atomic<std::uint32_t>(0);
    auto doorbell = Doorbell::create(*armed);
    if (!doorbell) return doorbell.error();
    made.doorbell = *std::move(doorbell);
    made.transport = std::make_unique<sim::SimTransport>(Rank{rank}, network_, options_);
    return {};
  }
  End end(int rank) override {
    ThreadRank& made = ranks_[static_cast<std::size_t>(rank)];
    return {made.transport.get(), made.memory.get(), made.doorbell.get()};
  }

 private:
  void ring(Rank to) { ranks_[static_cast<std::size_t>(to.value())].doorbell->ring(); }

  sim::Network network_;
  const sim::SimTransport::Options options_;
  std::deque<ThreadRank> ranks_;
};

Result<std::unique_ptr<Fabric>> make_sim(int rank_count) {
  auto fabric = std::make_unique<SimFabric>(rank_count);
  for (int rank = 0; rank < rank_count; ++rank) {
    if (auto added = fabric->add(rank); !added) return added.error();
  }
  return std::unique_ptr<Fabric>(std::move(fabric));
}

const FabricRegistration kSim("sim", &make_sim);

}  // namespace
}  // namespace farandole::conformance
