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
#include "unit/engine/posted.hpp"

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

/// One rank's part of a collective on four bytes each, all of whose peers one transport reaches.
CollectiveSpec spec_of(const VerifiedSchedule& schedule, int rank, Transport& transport,
                       const std::byte* source, std::byte* target) {
  const auto size = static_cast<std::size_t>(schedule.schedule().rank_count);
  auto group = std::make_shared<Group>();
  group->self = Rank{rank};
  for (std::size_t i = 0; i < size; ++i) group->world_ranks.push_back(Rank{static_cast<int>(i)});
  group->transports.assign(size, &transport);
  CollectiveSpec spec;
  spec.terms.group = group;
  spec.device = std::make_shared<CpuDevice>();
  spec.scratch = {new std::byte[4], std::default_delete<std::byte[]>()};
  Binding binding;
  binding.program = std::make_shared<const Program>(specialize(schedule, rank));
  const auto chunks = static_cast<std::size_t>(binding.program->chunk_count);
  if (binding.program->collective == Collective::kAllgather) {
    binding.in = Layout::by_counts(std::array{std::size_t{4}});
    binding.out = Layout::by_counts(std::vector<std::size_t>(size, 4));
  } else {
    binding.in = Layout::by_counts(std::vector<std::size_t>(chunks, 4 / chunks));
    binding.out = binding.chunks = binding.in;
  }
  binding.dtype = DType::kUInt8;
  if (source == target) binding.in_offset = 0;
  auto bound = BoundProgram::bind(std::move(binding), flow_of(group));
  EXPECT_TRUE(bound) << bound.error().message;
  spec.bound = *std::move(bound);
  spec.in = source;
  spec.out = target;
  spec.kernel = *find_kernel(DType::kUInt8, Reduction::kSum);
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
      auto spec = spec_of(*verified, rank, transport, source.data(), target.data());
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
    transport.lose(Rank{lost});
    EXPECT_EQ(operation.lost_peer(), Rank{lost});
  }
}

// Goal: transports learn which receives are of sums that the peer has made, and which of these lie
// where the peer has read: the second, in place alone.
// Method: both rounds of a ring between two ranks, into another output, in place, and by way of
// scratch memory, to which the peer sends its input.
TEST(CollectiveOperation, SaysWhatThePeerHasMade) {
  ScheduleBuilder ring(Collective::kAllreduce, "ring", 2, 2);
  const Expr r = ring.rank(), other = (r + 1) % 2;
  ring.round().send(in(other), other).receive_reduce(out(r), in(r), other);
  ring.round().send(out(r), other).receive(out(other), other);
  ScheduleBuilder whole(Collective::kAllreduce, "whole", 2, 1);
  whole.scratch_slots(1);
  const Expr own = whole.rank(), peer = (own + 1) % 2;
  whole.round().send(in(0), peer).receive(scratch(0, 0), peer);
  RoundBuilder sum = whole.round();
  sum.when(own, 0, 1).reduce(out(0), in(0), scratch(0, 0));
  sum.always().when(own, 1, 2).reduce(out(0), scratch(0, 0), in(0));
  const auto by_ring = verify(std::move(ring).build()),
             by_scratch = verify(std::move(whole).build());
  ASSERT_TRUE(by_ring) << by_ring.error().message;
  ASSERT_TRUE(by_scratch) << by_scratch.error().message;
  for (const bool in_place : {false, true}) {
    for (const auto* schedule : {&*by_ring, &*by_scratch}) {
      Posted transport;
      std::array<std::byte, 4> source{}, target{};
      std::byte* const result = in_place ? source.data() : target.data();
      CollectiveOperation operation(spec_of(*schedule, 0, transport, source.data(), result));
      (void)operation.step();
      for (std::size_t ended = 0; !operation.finished(); (void)operation.step()) {
        ASSERT_LT(ended, transport.transfers.size());
        for (; ended < transport.transfers.size(); ++ended) transport.transfers[ended]->finish();
      }
      std::vector<std::pair<bool, bool>> said, expected = {{false, false}};
      for (const Receive* receive : transport.receives) {
        if (receive->consume != nullptr) continue;
        said.emplace_back(receive->peer_has_made, receive->peer_has_read);
      }
      if (schedule == &*by_ring) expected = {{true, in_place}};
      EXPECT_EQ(said, expected) << schedule->schedule().algorithm << (in_place ? ", in place" : "");
    }
  }
}

}  // namespace
}  // namespace farandole
