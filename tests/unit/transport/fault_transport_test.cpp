// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/fault/fault_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

namespace farandole {
namespace {

// A transport that writes down what reaches it, and ends transfers when told to.
class Ledger final : public Transport {
 public:
  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override { return {}; }
  Result<void> add_peer(const Member& peer, Deadline) override {
    capabilities_.all_memory = peer.rank == Rank{3};
    return {};
  }
  Result<void> connect(std::span<const Rank>, Deadline) override { return {}; }
  Result<bool> register_memory(std::span<std::byte> memory) override {
    capabilities_.peer_memory = true;
    registered.push_back(memory.data());
    return true;
  }
  void release_memory(std::span<std::byte> memory) override {
    std::erase(registered, memory.data());
  }
  void post(Send& send) override { sends.push_back(&send); }
  void post(Receive& receive) override { receives.push_back(&receive); }
  bool progress() override { return ++progress_count, false; }
  bool cancel(OperationId) override { return true; }
  void peer_failed(Rank) override {}

  std::vector<Send*> sends;
  std::vector<Receive*> receives;
  std::vector<const std::byte*> registered;
  int progress_count = 0;

 private:
  Capabilities capabilities_{.name = "ledger", .follow_bytes = Bytes{1}};
};

struct Faulty {
  explicit Faulty(FaultTransport::Options options) {
    auto made = std::make_unique<Ledger>();
    inner = made.get();
    outer = std::make_unique<FaultTransport>(std::move(made), std::move(options));
  }
  Send& send(int peer, std::uint32_t lane) {
    Send& made = sends.emplace_back();
    made.peer = Rank{peer};
    made.tag.lane = lane;
    outer->post(made);
    return made;
  }
  Receive& receive(int peer, std::uint32_t lane) {
    Receive& made = receives.emplace_back();
    made.peer = Rank{peer};
    made.tag.lane = lane;
    outer->post(made);
    return made;
  }
  void run(int calls) {
    for (int i = 0; i < calls; ++i) outer->progress();
  }
  // The order in which the posted sends reached the inner transport.
  std::vector<long> order() const {
    std::vector<long> result;
    for (const Send* each : inner->sends) {
      const auto found = std::ranges::find_if(sends, [&](auto& one) { return &one == each; });
      result.push_back(found - sends.begin());
    }
    return result;
  }

  Ledger* inner;
  std::unique_ptr<FaultTransport> outer;
  std::deque<Send> sends;
  std::deque<Receive> receives;
};

FaultTransport::Options options(std::uint64_t seed) {
  FaultTransport::Options made;
  made.seed = seed;
  return made;
}

FaultTransport::Options late(std::uint64_t seed, bool reorder) {
  FaultTransport::Options made = options(seed);
  made.post_delay_max = 10;
  made.reorder = reorder;
  return made;
}

TEST(FaultTransport, NameHasTheSeed) {
  Faulty faulty(options(77));
  EXPECT_EQ(faulty.outer->capabilities().name, "fault(ledger, seed 77)");
  EXPECT_EQ(faulty.outer->capabilities().follow_bytes, Bytes{1});
}

// Goal: peers and memory are added to the other transport, and what it can do by them is seen.
TEST(FaultTransport, AddsPeersAndMemory) {
  Faulty faulty(options(1));
  std::byte memory[16];
  EXPECT_FALSE(faulty.outer->capabilities().peer_memory);
  EXPECT_TRUE(*faulty.outer->register_memory(memory));
  EXPECT_EQ(faulty.inner->registered, std::vector<const std::byte*>{memory});
  EXPECT_TRUE(faulty.outer->capabilities().peer_memory);
  faulty.outer->release_memory(memory);
  EXPECT_TRUE(faulty.inner->registered.empty());
  EXPECT_FALSE(faulty.outer->capabilities().all_memory);
  EXPECT_TRUE(faulty.outer->add_peer({.rank = Rank{3}}, Deadline::never()));
  EXPECT_TRUE(faulty.outer->capabilities().all_memory);
  EXPECT_EQ(faulty.outer->capabilities().name, "fault(ledger, seed 1)");
}

// Goal: without options it is the other transport.
TEST(FaultTransport, FineWeather) {
  Faulty faulty(options(1));
  for (std::uint32_t i = 0; i < 20; ++i) faulty.send(1, i % 3), faulty.receive(1, i % 3);
  EXPECT_FALSE(faulty.outer->progress());
  EXPECT_EQ(faulty.inner->progress_count, 1);
  EXPECT_EQ(faulty.inner->sends.size(), 20u);
  EXPECT_EQ(faulty.inner->receives.size(), 20u);
  EXPECT_TRUE(std::ranges::is_sorted(faulty.order()));
}

// Goal: late is not never; the order stays, or changes only between tags and peers, and some
// seed does change it. Equal seeds give equal orders, other seeds others.
TEST(FaultTransport, DelaysAndOrder) {
  std::vector<std::vector<long>> orders;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const bool reorder : {false, true}) {
      std::vector<long> first;
      for (int repeat = 0; repeat < 2; ++repeat) {
        Faulty faulty(late(seed, reorder));
        for (int i = 0; i < 24; ++i) faulty.send(i % 2, static_cast<std::uint32_t>(i % 3));
        EXPECT_TRUE(faulty.outer->progress());  // something is held: do not sleep
        EXPECT_LT(faulty.inner->sends.size(), 24u);
        faulty.run(10);
        const std::vector<long> order = faulty.order();
        ASSERT_EQ(order.size(), 24u);
        EXPECT_FALSE(faulty.outer->progress());
        EXPECT_TRUE(reorder || std::ranges::is_sorted(order));
        for (long stream = 0; stream < 6; ++stream) {
          std::vector<long> same;
          std::ranges::copy_if(order, std::back_inserter(same),
                               [&](long i) { return i % 6 == stream; });
          EXPECT_TRUE(std::ranges::is_sorted(same)) << "seed " << seed;
        }
        if (repeat == 0) first = order;
        EXPECT_EQ(order, first) << "seed " << seed;
      }
      if (reorder) orders.push_back(first);
    }
  }
  std::ranges::sort(orders);
  EXPECT_GT(std::ranges::unique(orders).begin() - orders.begin(), 40);
}

// Goal: a stall keeps the other transport from moving for a bounded time and does not let the
// engine sleep.
TEST(FaultTransport, Stalls) {
  FaultTransport::Options stormy = options(3);
  stormy.stall_every = 1;
  stormy.stall_max = 6;
  int stalled_calls = 0;
  for (stormy.seed = 1; stormy.seed <= 20; ++stormy.seed) {
    Faulty faulty(stormy);
    faulty.send(1, 0);
    int calls = 0;
    while (faulty.inner->progress_count == 0) {
      const bool moved = faulty.outer->progress();
      EXPECT_TRUE(moved || faulty.inner->progress_count == 1);
      ASSERT_LE(++calls, 7);
    }
    stalled_calls += calls - 1;
  }
  EXPECT_GT(stalled_calls, 20);
}

TEST(FaultTransport, FalseWakeUps) {
  FaultTransport::Options waking = options(1);
  waking.wake_every = 1;
  Faulty faulty(waking);
  faulty.send(1, 0);
  EXPECT_TRUE(faulty.outer->progress());
  EXPECT_FALSE(faulty.outer->progress());
}

// Goal: after a dropped message no later one of its peer and tag gets through, since it would be
// taken for the dropped one; others do.
TEST(FaultTransport, DropsCutTheStream) {
  FaultTransport::Options lossy = options(1);
  lossy.drop_every = 10;
  int lost_streams = 0;
  for (lossy.seed = 1; lossy.seed <= 50; ++lossy.seed) {
    Faulty faulty(lossy);
    for (int i = 0; i < 24; ++i) faulty.send(i % 2, static_cast<std::uint32_t>(i % 3));
    faulty.run(1);
    const std::vector<long> order = faulty.order();
    for (long stream = 0; stream < 6; ++stream) {
      std::vector<long> passed;
      std::ranges::copy_if(order, std::back_inserter(passed),
                           [&](long i) { return i % 6 == stream; });
      for (std::size_t i = 0; i < passed.size(); ++i) {
        EXPECT_EQ(passed[i], stream + 6 * static_cast<long>(i)) << "seed " << lossy.seed;
      }
      lost_streams += passed.size() < 4 ? 1 : 0;
    }
    for (const Send& send : faulty.sends) {
      const bool passed =
          std::ranges::find(faulty.inner->sends, &send) != faulty.inner->sends.end();
      EXPECT_EQ(send.state, passed ? TransferState::kActive : TransferState::kDone);
    }
  }
  EXPECT_GT(lost_streams, 50);
  EXPECT_LT(lost_streams, 200);
}

// Goal: a killed rank calls the hook once, or without one moves nothing any more.
TEST(FaultTransport, Kill) {
  int kills = 0;
  FaultTransport::Options deadly = options(1);
  deadly.kill_after_sends = 3;
  Faulty silent(deadly);
  deadly.on_kill = [&kills] { ++kills; };
  Faulty hooked(deadly);
  for (Faulty* each : {&silent, &hooked}) {
    each->send(1, 0), each->send(1, 1);
    each->run(2);
    EXPECT_EQ(each->inner->sends.size(), 2u);
    EXPECT_EQ(each->inner->progress_count, 2);
    each->send(1, 2);
    each->run(5);
  }
  EXPECT_EQ(silent.inner->sends.size(), 2u);
  EXPECT_EQ(silent.inner->progress_count, 2);
  EXPECT_EQ(hooked.inner->sends.size(), 3u);
  EXPECT_EQ(kills, 1);
}

// Goal: what is still held ends with its operation or its peer and never comes through.
TEST(FaultTransport, HeldTransfersEnd) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Faulty faulty(late(seed, true));
    for (int i = 0; i < 10; ++i) {
      faulty.send(i % 2, 0);
      faulty.receive(i % 2, 0);
    }
    faulty.outer->peer_failed(Rank{1});
    for (int i = 0; i < 10; ++i) {
      for (const Transfer* each :
           {static_cast<Transfer*>(&faulty.sends[static_cast<size_t>(i)]),
            static_cast<Transfer*>(&faulty.receives[static_cast<size_t>(i)])}) {
        EXPECT_EQ(each->state, i % 2 == 1 ? TransferState::kFailed : TransferState::kActive);
        EXPECT_TRUE(i % 2 == 0 || each->error == ErrorKind::kRankFailed);
      }
    }
    EXPECT_TRUE(faulty.outer->cancel({}));
    for (const Send& each : faulty.sends) EXPECT_EQ(each.state, TransferState::kFailed);
    for (const Receive& each : faulty.receives) EXPECT_EQ(each.state, TransferState::kFailed);
    faulty.run(20);
    EXPECT_TRUE(faulty.inner->sends.empty() && faulty.inner->receives.empty());
  }
}

}  // namespace
}  // namespace farandole
