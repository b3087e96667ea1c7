// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/collective.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/builder.hpp"

namespace farandole {
namespace {

/// Alltoall of one rank: its own block, once in a round of its own, once in a loop so long that no
/// run of it is recorded.
Program own_block(std::int64_t times) {
  ScheduleBuilder b(Collective::kAlltoall, "own", 1, 1);
  b.loop(times, [&](const Expr&) { b.round().copy(out(0), in(0)); });
  auto verified = verify(std::move(b).build());
  if (!verified) ADD_FAILURE() << verified.error().message;
  return specialize(*verified, 0);
}

// Goal: whatever counts reach the engine, a local copy never writes behind its target: chunks of
// different lengths are named as our mistake before anything is written.
// Method: layouts that the front end refuses, of a program that is bound at once and of one that is
// bound as it runs; the buffers are as long as the shorter side, with a mark behind.
TEST(CollectiveOperation, RefusesALocalCopyOfUnequalLengths) {
  for (const std::int64_t times : {1, 1000}) {
    for (const auto& [in_count, out_count] : {std::pair(5, 2), std::pair(2, 5)}) {
      const std::array source{1, 2, 3, 4, 5};
      std::array target{-1, -1, -1, -1, -1};
      auto group = std::make_shared<Group>();
      group->world_ranks = {Rank{0}};
      group->transports = {nullptr};
      CollectiveSpec spec;
      spec.terms.group = group;
      spec.device = std::make_shared<CpuDevice>();
      Binding binding;
      binding.program = std::make_shared<const Program>(own_block(times));
      binding.in = Layout::by_counts(std::array{static_cast<std::size_t>(in_count)});
      binding.out = Layout::by_counts(std::array{static_cast<std::size_t>(out_count)});
      binding.dtype = DType::kInt32;
      auto bound = BoundProgram::bind(std::move(binding), flow_of(group));
      ASSERT_EQ(static_cast<bool>(bound), times > 1);
      if (!bound) {
        EXPECT_EQ(bound.error().kind, ErrorKind::kInternal);
        EXPECT_NE(bound.error().message.find("different lengths"), std::string::npos);
        continue;
      }
      spec.bound = *std::move(bound);
      spec.in = reinterpret_cast<const std::byte*>(source.data());
      spec.out = reinterpret_cast<std::byte*>(target.data());
      const auto operation = std::make_shared<CollectiveOperation>(std::move(spec));
      while (!operation->finished()) operation->step();
      ASSERT_FALSE(operation->outcome());
      EXPECT_EQ(operation->outcome().error().kind, ErrorKind::kInternal);
      EXPECT_NE(operation->outcome().error().message.find("different lengths"), std::string::npos);
      EXPECT_EQ(target, (std::array{-1, -1, -1, -1, -1}));
    }
  }
}

/// Keeps what is posted.
class Posted final : public Transport {
 public:
  const Capabilities& capabilities() const override { return capabilities_; }
  TransportCounters counters() const override { return {}; }
  Result<void> add_peer(const Member&, Deadline) override { return {}; }
  Result<void> connect(std::span<const Rank>, Deadline) override { return {}; }
  void post(Send& send) override { transfers.push_back(&send); }
  void post(Receive& receive) override { transfers.push_back(&receive); }
  bool progress() override { return false; }
  bool cancel(OperationId) override { return true; }
  void peer_failed(Rank) override {}

  std::vector<Transfer*> transfers;

 private:
  Capabilities capabilities_{.name = "posted"};
};

/// One rank's part of a collective on four bytes each, all of whose peers one transport reaches.
CollectiveSpec spec_of(const VerifiedSchedule& schedule, int rank, Transport& transport,
                       const std::byte* source, std::byte* target, bool one_sends = false) {
  const auto size = static_cast<std::size_t>(schedule.schedule().rank_count);
  auto group = std::make_shared<Group>();
  group->self = Rank{rank};
  for (std::size_t i = 0; i < size; ++i) group->world_ranks.push_back(Rank{static_cast<int>(i)});
  group->transports.assign(size, &transport);
  CollectiveSpec spec;
  spec.terms.group = group;
  spec.device = std::make_shared<CpuDevice>();
  Binding binding;
  binding.program = std::make_shared<const Program>(specialize(schedule, rank));
  binding.in = Layout::by_counts(std::array{std::size_t{4}});
  binding.out = one_sends ? binding.in : Layout::by_counts(std::vector<std::size_t>(size, 4));
  binding.dtype = DType::kUInt8;
  auto bound = BoundProgram::bind(std::move(binding), flow_of(group));
  EXPECT_TRUE(bound) << bound.error().message;
  spec.bound = *std::move(bound);
  spec.in = source;
  spec.out = target;
  return spec;
}

// Goal: transports learn from their transfers, not from the collective, that only one rank sends.
// Method: both ends of a broadcast and of an allgather between two ranks.
TEST(CollectiveOperation, SaysThatOnlyOneRankSends) {
  for (const Collective collective : {Collective::kBroadcast, Collective::kAllgather}) {
    const bool one_sends = collective == Collective::kBroadcast;
    ScheduleBuilder b(collective, "two", 2, one_sends ? 1 : 2);
    const Expr r = b.rank();
    RoundBuilder round = b.round();
    if (one_sends) {
      b.root(0);
      round.when(r, 0, 1).send(in(0), 1).then().copy(out(0), in(0));
      round.always().when(r, 1, 2).receive(out(0), 0);
    } else {
      round.send(in(0), (r + 1) % 2).receive(out((r + 1) % 2), (r + 1) % 2);
      b.round().copy(out(r), in(0));
    }
    const auto verified = verify(std::move(b).build());
    ASSERT_TRUE(verified) << verified.error().message;
    for (const int rank : {0, 1}) {
      Posted transport;
      std::array<std::byte, 8> source{}, target{};
      auto spec = spec_of(*verified, rank, transport, source.data(), target.data(), one_sends);
      const auto operation = std::make_shared<CollectiveOperation>(std::move(spec));
      (void)operation->step();
      ASSERT_FALSE(transport.transfers.empty());
      for (const Transfer* transfer : transport.transfers) {
        EXPECT_EQ(transfer->one_sends, one_sends) << "rank " << rank;
      }
    }
  }
}

// Goal: the rank that a transport has lost is named, whichever transfer it has.
// Method: a round that sends to one rank and receives from another; fail either.
TEST(CollectiveOperation, NamesThePeerThatIsLost) {
  ScheduleBuilder b(Collective::kAllgather, "three", 3, 3);
  const Expr r = b.rank();
  b.round().send(in(0), (r + 1) % 3).receive(out((r + 2) % 3), (r + 2) % 3);
  b.round().send(in(0), (r + 2) % 3).receive(out((r + 1) % 3), (r + 1) % 3);
  b.round().copy(out(r), in(0));
  const auto verified = verify(std::move(b).build());
  ASSERT_TRUE(verified) << verified.error().message;
  for (const int lost : {1, 2}) {
    Posted transport;
    std::array<std::byte, 4> source{};
    std::array<std::byte, 12> target{};
    CollectiveOperation operation(spec_of(*verified, 0, transport, source.data(), target.data()));
    (void)operation.step();
    ASSERT_EQ(transport.transfers.size(), 2U);
    EXPECT_EQ(operation.lost_peer(), std::nullopt);
    for (Transfer* transfer : transport.transfers) {
      if (transfer->peer == Rank{lost}) transfer->fail(ErrorKind::kRankFailed);
    }
    EXPECT_EQ(operation.lost_peer(), Rank{lost});
  }
}

}  // namespace
}  // namespace farandole
