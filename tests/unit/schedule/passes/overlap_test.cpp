// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/passes/overlap.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace farandole {
namespace {

constexpr std::uint32_t kNone = BoundAction::kNone;
constexpr std::size_t kLong = 100'000;  // bytes: longer than what a message takes along

ByteSpan at(Buffer buffer, std::size_t offset, std::size_t bytes = kLong) {
  return {buffer, offset, Bytes{bytes}};
}
ByteSpan in(std::size_t offset, std::size_t bytes = kLong) {
  return at(Buffer::kIn, offset, bytes);
}
ByteSpan out(std::size_t offset, std::size_t bytes = kLong) {
  return at(Buffer::kOut, offset, bytes);
}
ByteSpan scratch(std::size_t offset, std::size_t bytes = kLong) {
  return at(Buffer::kScratch, offset, bytes);
}

/// The actions of one rank, as a binder makes them.
class Rounds {
 public:
  explicit Rounds(BoundTerms terms) : terms_(terms) {}

  Rounds& round() {
    rounds_.push_back({.first = static_cast<std::uint32_t>(actions_.size())});
    return *this;
  }
  Rounds& send(std::int32_t peer, ByteSpan source) {
    BoundAction& added = add(Action::Kind::kSend, source.bytes);
    added.source = source;
    added.peer = peer;
    return *this;
  }
  Rounds& receive(std::int32_t peer, ByteSpan target) {
    BoundAction& added = add(Action::Kind::kReceive, target.bytes);
    added.target = target;
    added.peer = peer;
    return *this;
  }
  /// target = operand + what comes.
  Rounds& reduce(std::int32_t peer, ByteSpan target, ByteSpan operand) {
    receive(peer, target);
    actions_.back().operand = operand;
    described_.back().target = described_.back().operand = Span{Buffer::kOut, 0, 1, 0};
    return *this;
  }
  Rounds& copy(ByteSpan source, ByteSpan target) {
    BoundAction& added = add(Action::Kind::kLocal, source.bytes);
    added.source = source;
    added.target = target;
    added.streams = false;
    return *this;
  }
  /// The latest action waits for the one before it, unless release() finds that it need not.
  Rounds& after_previous() {
    actions_.back().held = true;
    const auto before = static_cast<std::uint32_t>(actions_.size()) - 2;
    release(terms_, actions_[before], before, actions_.back());
    return *this;
  }
  Rounds& whole_messages() {
    actions_.back().streams = false;
    return *this;
  }

  /// Whether the second round may begin with the first; then it has.
  bool joins() {
    if (!join(terms_, actions_, rounds_[0], rounds_[1])) return false;
    rounds_.pop_back();
    return true;
  }
  std::vector<BoundAction>& finished() {
    for (BoundRound& each : rounds_) finish(terms_, actions_, each);
    return actions_;
  }
  std::vector<std::uint32_t> order_of_posting() {
    finished();
    std::vector<std::uint32_t> order;
    for (auto i = rounds_[0].posted_first; i != kNone; i = actions_[i].next) order.push_back(i);
    return order;
  }
  /// Lets everything begin at once.
  Rounds& merge() {
    rounds_[0].count = static_cast<std::uint32_t>(actions_.size());
    rounds_.resize(1);
    return *this;
  }
  Result<void> check() const { return check_overlaps(terms_, actions_, rounds_); }
  std::vector<BoundAction>& actions() { return actions_; }

 private:
  BoundAction& add(Action::Kind kind, Bytes bytes) {
    described_.push_back({.kind = kind});
    actions_.push_back({.action = &described_.back(),
                        .step = static_cast<std::uint32_t>(rounds_.size()),
                        .bytes = bytes,
                        .streams = true});
    ++rounds_.back().count;
    return actions_.back();
  }

  BoundTerms terms_;
  std::deque<Action> described_;
  std::vector<BoundAction> actions_;
  std::vector<BoundRound> rounds_;
};

BoundTerms allreduce(bool in_place = false) {
  return {.collective = Collective::kAllreduce,
          .in_offset = in_place ? std::optional<std::int64_t>(0) : std::nullopt,
          .out_bytes = Bytes{1 << 20}};
}
BoundTerms allgather(std::size_t out_bytes = 1 << 20) {
  return {.collective = Collective::kAllgather, .out_bytes = Bytes{out_bytes}};
}

TEST(Overlap, IsAByteThatBothHave) {
  const BoundTerms terms = allreduce();
  EXPECT_TRUE(overlap(terms, out(0, 10), out(9, 5)));
  EXPECT_TRUE(overlap(terms, out(9, 5), out(0, 10)));
  EXPECT_TRUE(overlap(terms, out(0, 10), out(3, 2)));
  EXPECT_FALSE(overlap(terms, out(0, 10), out(10, 5)));
  EXPECT_FALSE(overlap(terms, out(10, 5), out(0, 10)));
  EXPECT_FALSE(overlap(terms, out(0, 10), out(5, 0)));
  EXPECT_FALSE(overlap(terms, out(0, 10), in(0, 10)));
  EXPECT_FALSE(overlap(terms, out(0, 10), scratch(0, 10)));
}

TEST(Overlap, InPlaceInputAndOutputAreOneMemory) {
  EXPECT_TRUE(overlap(allreduce(true), out(0, 10), in(5, 10)));
  EXPECT_TRUE(is_same(allreduce(true), out(0, 10), in(0, 10)));
  EXPECT_FALSE(is_same(allreduce(false), out(0, 10), in(0, 10)));
  EXPECT_FALSE(is_same(allreduce(true), out(0, 10), in(0, 9)));
  EXPECT_FALSE(is_same(allreduce(true), out(0, 10), in(1, 10)));
  EXPECT_FALSE(overlap(allreduce(true), scratch(0, 10), in(0, 10)));
  EXPECT_FALSE(overlap(allreduce(true), scratch(0, 10), out(0, 10)));
}

// Method: `in` lies 100 bytes behind the beginning of `out`, as on rank 1 of an allgather.
TEST(Overlap, InputMayLieAnywhereInOutput) {
  BoundTerms terms = allgather();
  terms.in_offset = 100;
  EXPECT_TRUE(is_same(terms, in(0, 100), out(100, 100)));
  EXPECT_FALSE(overlap(terms, in(0, 100), out(0, 100)));
  EXPECT_TRUE(overlap(terms, in(0, 100), out(0, 101)));
  EXPECT_FALSE(overlap(terms, in(0, 100), out(200, 100)));
  terms.in_offset = -100;  // a reducescatter
  EXPECT_TRUE(is_same(terms, in(100, 100), out(0, 100)));
  EXPECT_FALSE(overlap(terms, in(0, 100), out(0, 100)));
}

// Goal: receives that reduce into one place take turns piece by piece, and no others.
TEST(Release, ReceivesIntoOnePlaceTakeTurns) {
  Rounds turns(allreduce());
  turns.round().reduce(1, out(0), out(0)).reduce(2, out(0), out(0)).after_previous();
  EXPECT_FALSE(turns.actions()[1].held);
  EXPECT_EQ(turns.actions()[1].behind, 0u);
  EXPECT_TRUE(turns.check());

  Rounds whole(allreduce());
  whole.round().reduce(1, out(0), out(0)).reduce(2, out(0), out(0)).whole_messages();
  whole.after_previous();
  EXPECT_TRUE(whole.actions()[1].held);
  EXPECT_EQ(whole.actions()[1].behind, kNone);

  Rounds copied(allreduce());
  copied.round().receive(1, out(0)).copy(out(0), out(kLong)).after_previous();
  EXPECT_TRUE(copied.actions()[1].held);
}

// Goal: what a round receives into a place that the round before sends from comes no sooner than
// the peer has read it; only a peer that answers to that very message has.
TEST(Join, AReceiveOverASendComesFromTheSamePeer) {
  const auto ring = [](std::int32_t answering, ByteSpan answer) {
    Rounds rounds(allreduce());
    rounds.round().send(1, out(0)).reduce(2, out(kLong), in(kLong));
    rounds.round().send(1, out(kLong)).receive(answering, answer);
    return rounds;
  };
  Rounds answer = ring(1, out(0));
  EXPECT_TRUE(answer.joins());
  EXPECT_EQ(answer.actions()[2].behind, 1u);
  EXPECT_TRUE(answer.check());
  Rounds other = ring(2, out(0));
  EXPECT_FALSE(other.joins());
  EXPECT_FALSE(other.merge().check());
  Rounds shifted = ring(1, out(kLong / 2));
  EXPECT_FALSE(shifted.joins());
  Rounds apart = ring(2, out(2 * kLong));
  EXPECT_TRUE(apart.joins());
}

TEST(Join, NothingIsReceivedOverWhatIsReceivedOrReduced) {
  for (const ByteSpan over : {out(kLong), in(kLong)}) {
    Rounds rounds(allreduce(true));
    rounds.round().send(1, out(0)).reduce(2, out(kLong), in(kLong));
    rounds.round().send(1, out(kLong)).receive(2, over);
    EXPECT_FALSE(rounds.joins());
  }
  Rounds operand(allreduce());
  operand.round().send(1, in(0)).reduce(2, out(kLong), out(5 * kLong));
  operand.round().send(1, out(kLong)).receive(2, out(5 * kLong));
  EXPECT_FALSE(operand.joins());
}

TEST(Join, OnlyWhatTheLastReceiveFillsIsSentOn) {
  Rounds other(allreduce());
  other.round().reduce(2, out(0), in(0));
  other.round().send(1, out(kLong));
  EXPECT_FALSE(other.joins());
  Rounds whole(allreduce());
  whole.round().reduce(2, out(0), in(0));
  whole.round().send(1, out(0)).whole_messages();
  EXPECT_FALSE(whole.joins());
  Rounds gathered(allgather());  // peers of an allgather do not answer
  gathered.round().receive(2, out(0));
  gathered.round().send(1, out(0));
  EXPECT_FALSE(gathered.joins());
}

// Goal: a copy from `in` to `out` is made beside a round that neither makes nor uses what it does.
TEST(Join, CopiesAreMadeBesideWhatLeavesThemAlone) {
  const auto copies = [](ByteSpan target, ByteSpan source, ByteSpan copied) {
    Rounds rounds(allgather());
    rounds.round().send(1, in(0)).receive(1, out(kLong));
    rounds.actions()[1].operand = source;
    rounds.round().copy(copied, target);
    return rounds;
  };
  const ByteSpan elsewhere = scratch(0);
  EXPECT_TRUE(copies(out(0), elsewhere, in(0)).joins());
  EXPECT_FALSE(copies(out(kLong), elsewhere, in(0)).joins());      // what is received
  EXPECT_FALSE(copies(out(kLong / 2), elsewhere, in(0)).joins());  // a part of it
  EXPECT_FALSE(copies(out(0), out(0), in(0)).joins());             // what is an operand
  EXPECT_FALSE(copies(out(0), out(kLong - 1), in(0)).joins());
  EXPECT_FALSE(copies(out(0), elsewhere, scratch(kLong)).joins());  // not from `in`
}

TEST(Join, NoCopyIsMadeBesideWhatComesOverItsSource) {
  BoundTerms terms = allgather();
  terms.in_offset = 0;
  Rounds rounds(terms);
  rounds.round().send(1, in(0)).receive(1, out(kLong));
  rounds.round().copy(in(kLong, 100), out(3 * kLong, 100));
  EXPECT_FALSE(rounds.joins());
}

TEST(Join, ACopyThatNoSendCarriesPaysOnlyIfItIsShortOrLeavesTheCaches) {
  const auto lone = [](BoundTerms terms, std::size_t bytes) {
    Rounds rounds(terms);
    rounds.round().send(1, in(0, bytes)).receive(1, out(kLong, bytes));
    rounds.round().copy(in(bytes, bytes), out(0, bytes));
    return rounds;
  };
  EXPECT_FALSE(lone(allgather(), kLong).joins());
  EXPECT_TRUE(lone(allgather(), 4096).joins());
  EXPECT_TRUE(lone(allgather(std::size_t{8} << 20), kLong).joins());
}

// Goal: a copy rides a send of the very bytes that it copies, long enough to tell how far it is.
TEST(Finish, ACopyRidesASendOfItsSource) {
  const auto carried = [](ByteSpan sent, ByteSpan copied, std::size_t sends = 1) {
    Rounds rounds(allgather());
    rounds.round();
    for (std::size_t i = 0; i < sends; ++i) rounds.send(static_cast<std::int32_t>(i + 1), sent);
    rounds.copy(copied, out(0, copied.bytes.value()));
    return rounds;
  };
  Rounds two = carried(in(0), in(0), 2);
  const auto& actions = two.finished();
  EXPECT_EQ(actions[2].rides, 0u);
  EXPECT_EQ(actions[0].along, 2u);
  EXPECT_EQ(actions[1].along, 2u);
  EXPECT_TRUE(two.check());
  Rounds apart = carried(in(kLong), in(0));
  EXPECT_EQ(apart.finished()[1].rides, kNone);
  Rounds shorter = carried(in(0, kLong / 2), in(0));
  EXPECT_EQ(shorter.finished()[1].rides, kNone);
  Rounds whole = carried(in(0), in(0));
  whole.actions()[0].streams = false;
  EXPECT_EQ(whole.finished()[1].rides, kNone);
}

TEST(Finish, PostsShortSendsThenReceivesThenTheRest) {
  Rounds rounds(allgather());
  rounds.round().send(1, in(0)).receive(1, out(0)).send(2, in(0, 8)).receive(2, out(kLong));
  EXPECT_EQ(rounds.order_of_posting(), (std::vector<std::uint32_t>{2, 1, 3, 0}));
}

// Goal: the check finds every way in which two actions of a round may spoil each other, and leaves
// the ones alone that may not.
TEST(CheckOverlaps, FindsWhatSpoilsAnotherAction) {
  const auto refused = [](Rounds rounds) { return !rounds.check(); };
  const BoundTerms terms = allreduce(), in_place = allreduce(true);
  EXPECT_TRUE(refused(Rounds(terms).round().send(1, out(0)).receive(2, out(kLong - 1))));
  EXPECT_FALSE(refused(Rounds(terms).round().send(1, out(0)).receive(2, out(kLong))));
  EXPECT_TRUE(refused(Rounds(in_place).round().send(1, in(0)).receive(2, out(0))));
  EXPECT_FALSE(refused(Rounds(terms).round().send(1, in(0)).receive(2, out(0))));
  EXPECT_TRUE(refused(Rounds(terms).round().receive(1, out(0)).receive(2, out(0))));
  EXPECT_TRUE(refused(Rounds(terms).round().reduce(1, out(0), out(kLong)).receive(2, out(kLong))));
  EXPECT_TRUE(refused(Rounds(terms).round().copy(out(0), out(kLong)).receive(2, out(0))));
  EXPECT_TRUE(refused(Rounds(terms).round().copy(in(0), out(0)).send(2, out(0))));
  EXPECT_FALSE(refused(Rounds(terms).round().send(1, out(0)).send(2, out(0))));
}

TEST(CheckOverlaps, KnowsWhatWaitsForWhat) {
  const auto chain = [] {
    Rounds rounds(allreduce());
    rounds.round().receive(1, out(0)).whole_messages().copy(out(0), out(kLong)).after_previous();
    return rounds;
  };
  Rounds right = chain();
  EXPECT_TRUE(right.check());
  Rounds let_go = chain();
  let_go.actions()[1].held = false;
  EXPECT_FALSE(let_go.check());

  Rounds turns(allreduce());
  turns.round().reduce(1, out(0), out(0)).reduce(2, out(0), out(0)).after_previous();
  turns.actions()[1].behind = kNone;
  EXPECT_FALSE(turns.check());
  turns.actions()[1].behind = 5;  // there is no such action
  EXPECT_FALSE(turns.check());
}

TEST(CheckOverlaps, KnowsWhatRidesWhat) {
  Rounds rounds(allgather());
  rounds.round().send(1, in(0)).copy(in(0), out(0));
  EXPECT_EQ(rounds.finished()[1].rides, 0u);
  EXPECT_TRUE(rounds.check());
  rounds.actions()[0].source = in(kLong);
  const auto refused = rounds.check();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kInternal);
}

}  // namespace
}  // namespace farandole
