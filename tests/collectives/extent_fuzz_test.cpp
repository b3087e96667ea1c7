// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#include "algorithms/registry.hpp"
#include "unit/base/full_run.hpp"
#include "unit/frontend/ranks.hpp"

// Goal: no counts, splits, sizes, roots or positions in place make a collective write or read
// outside the memory that its caller gave; what ranks agree on gives the right result, what they
// do not is an error, and the next call is right.
// Method: calls drawn from a seed that all ranks share, so that each can compute what any of them
// gives. Buffers are exactly as long as they must be, between zones that ASan poisons and that are
// compared otherwise. FARANDOLE_TEST_FULL=1 makes more calls; FARANDOLE_TEST_SEED and
// FARANDOLE_TEST_CALL repeat one.
namespace farandole::testing {
namespace {

using Counts = std::vector<std::size_t>;

/// What is wrong with a call.
enum class Flaw : std::uint8_t {
  kNone,
  kOwnChunk,  // alltoall: a rank's own chunk has two lengths, on every rank
  kList,      // one count too many or too few, on every rank
  kDisagree,  // one rank's counts are others than its peers'
};

struct Plan {
  Collective collective = Collective::kAllreduce;
  DType dtype = DType::kUInt8;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  bool by_rank = false, in_place = false;
  std::string algorithm;
  Flaw flaw = Flaw::kNone;
  int odd = 0, odd_about = 0;  // kDisagree: which rank errs, about whose chunk
  std::size_t odd_count = 0;
  std::vector<Counts> lengths;  // [from][to] elements; alltoall's, otherwise all rows are alike

  std::size_t element() const { return size_of(dtype).value(); }
};

class Draw {
 public:
  Draw(std::uint64_t seed, std::size_t call) : random_(seed * 1'000'003 + call) {}
  std::size_t below(std::size_t limit) { return random_() % limit; }
  bool one_in(std::size_t times) { return below(times) == 0; }
  std::size_t length() {
    if (one_in(4)) return 0;
    return one_in(40) ? below(6000) : below(20);
  }

 private:
  std::mt19937_64 random_;
};

std::string drawn_algorithm(Draw& draw, Collective collective) {
  std::vector<std::string> names(2);  // the default more often
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->collective == collective) names.emplace_back(info->name);
  }
  return names[draw.below(names.size())];
}

Plan drawn(std::uint64_t seed, std::size_t call, int size) {
  Draw draw(seed, call);
  const auto p = static_cast<std::size_t>(size);
  Plan plan;
  plan.collective = static_cast<Collective>(draw.below(kCollectiveCount));
  const std::vector kinds = {DType::kUInt8, DType::kUInt16, DType::kUInt32, DType::kUInt64,
                             DType::kComplex128};
  plan.dtype = kinds[draw.below(reduces(plan.collective) ? 4 : 5)];
  plan.reduction = draw.one_in(2) ? Reduction::kSum : Reduction::kBitwiseXor;
  plan.root = static_cast<int>(draw.below(p));
  const bool whole =
      plan.collective == Collective::kAllreduce || plan.collective == Collective::kReduce ||
      plan.collective == Collective::kBroadcast || plan.collective == Collective::kBarrier;
  plan.by_rank = !whole && !draw.one_in(3);
  plan.in_place = draw.one_in(3);
  plan.algorithm = drawn_algorithm(draw, plan.collective);
  const std::size_t same = draw.length();
  Counts counts(p, same);
  if (plan.by_rank) std::ranges::generate(counts, [&] { return draw.length(); });
  plan.lengths.assign(p, counts);
  const bool alltoall = plan.collective == Collective::kAlltoall;
  if (plan.by_rank && alltoall) {
    for (Counts& row : plan.lengths) std::ranges::generate(row, [&] { return draw.length(); });
  }
  if (!plan.by_rank) return plan;
  if (alltoall && draw.one_in(4)) plan.flaw = Flaw::kOwnChunk;
  const bool all_know = alltoall || plan.collective == Collective::kAllgather ||
                        plan.collective == Collective::kReducescatter;
  if (all_know && draw.one_in(8)) plan.flaw = Flaw::kList;
  if (p > 1 && draw.one_in(8)) {
    plan.flaw = Flaw::kDisagree;
    plan.odd = all_know ? static_cast<int>(draw.below(p)) : plan.root;
    plan.odd_about = (plan.odd + 1 + static_cast<int>(draw.below(p - 1))) % size;
    plan.odd_count = draw.below(60);
    const auto odd = static_cast<std::size_t>(plan.odd);
    const auto about = static_cast<std::size_t>(plan.odd_about);
    if (plan.lengths[about][alltoall ? odd : about] == plan.odd_count) ++plan.odd_count;
  }
  return plan;
}

/// Byte b of element i of what rank r gives.
std::byte given(std::size_t r, std::size_t i, std::size_t b) {
  const std::uint64_t mixed = (r * 1'000'003 + i * 31 + b + 1) * 0x9e3779b97f4a7c15;
  return static_cast<std::byte>(mixed >> 56);
}

/// Memory with a zone before and behind that nobody may touch.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes), all_(bytes + 2 * kZone, kMark) {
    ASAN_POISON_MEMORY_REGION(all_.data(), kZone);
    ASAN_POISON_MEMORY_REGION(all_.data() + kZone + bytes_, kZone);
  }
  Guarded(const Guarded&) = delete;
  ~Guarded() { ASAN_UNPOISON_MEMORY_REGION(all_.data(), all_.size()); }
  std::byte* data() { return all_.data() + kZone; }
  bool intact() {
    ASAN_UNPOISON_MEMORY_REGION(all_.data(), all_.size());
    const auto marked = [](std::byte byte) { return byte == kMark; };
    return std::all_of(all_.begin(), all_.begin() + kZone, marked) &&
           std::all_of(all_.end() - kZone, all_.end(), marked);
  }

 private:
  static constexpr std::ptrdiff_t kZone = 64;
  static constexpr std::byte kMark{0xd7};
  std::size_t bytes_;
  std::vector<std::byte> all_;
};

std::size_t before(const Counts& counts, std::size_t rank) {
  std::size_t sum = 0;
  for (std::size_t r = 0; r < rank; ++r) sum += counts[r];
  return sum;
}

/// One rank's side of a call: what it believes, what it gives, and what must come.
class Side {
 public:
  Side(const Plan& plan, std::size_t self, std::size_t size)
      : plan_(plan), self_(self), size_(size) {
    const bool alltoall = plan.collective == Collective::kAlltoall;
    sent_ = plan.lengths[self];
    received_ = sent_;
    if (alltoall) {
      for (std::size_t s = 0; s < size; ++s) received_[s] = plan.lengths[s][self];
    }
    if (plan.flaw == Flaw::kDisagree && static_cast<std::size_t>(plan.odd) == self) {
      received_[static_cast<std::size_t>(plan.odd_about)] = plan.odd_count;
      if (!alltoall) sent_ = received_;
    }
    if (plan.flaw == Flaw::kOwnChunk) received_[self] = received_[self] % 2 == 0 ? 1 : 0;
    measure();
  }

  /// Runs the call and says what is wrong with what came of it; counts errors among ranks.
  std::string run(Communicator& world, std::atomic<int>& mismatches) {
    const std::size_t element = plan_.element();
    // In place both sides lie in the memory of the longer one.
    const bool in_place = plan_.in_place && in_count_ > 0 && out_count_ > 0;
    const std::size_t shared = std::max(in_offset_ + in_count_, out_offset_ + out_count_);
    Guarded first((in_place ? shared : in_count_) * element);
    Guarded second((in_place ? 0 : out_count_) * element);
    std::byte* in = first.data() + (in_place ? in_offset_ * element : 0);
    std::byte* out = in_place ? first.data() + out_offset_ * element : second.data();
    for (std::size_t i = 0; i < in_count_ * element; ++i) {
      in[i] = given(self_, i / element, i % element);
    }
    if (plan_.flaw == Flaw::kList && plan_.odd_count % 2 == 0) sent_.pop_back();
    if (plan_.flaw == Flaw::kList) received_.resize(sent_.size() == size_ ? size_ + 1 : size_ - 1);
    Arguments arguments{.collective = plan_.collective, .in = in_count_ > 0 ? in : nullptr};
    arguments.out = out_count_ > 0 ? out : nullptr;
    arguments.count = Count{count_};
    arguments.dtype = plan_.dtype;
    arguments.reduction = plan_.reduction;
    arguments.root = Rank{plan_.root};
    arguments.by_rank = plan_.by_rank;
    if (plan_.by_rank) {
      arguments.in_counts = sent_;
      arguments.out_counts = received_;
    }
    const auto outcome = world.run(arguments, {.algorithm = plan_.algorithm});
    if (!outcome && outcome.error().kind == ErrorKind::kMismatch) ++mismatches;
    const std::string wrong = judge(outcome, out);
    if (!first.intact() || !second.intact()) return "a zone around a buffer was written";
    return wrong;
  }

 private:
  bool at_root() const { return static_cast<std::size_t>(plan_.root) == self_; }

  /// Elements of `in` and `out`, and where they lie in one memory.
  void measure() {
    const std::size_t sent = before(sent_, size_), received = before(received_, size_);
    const std::size_t own = sent_[self_], own_offset = before(sent_, self_);
    count_ = own;
    switch (plan_.collective) {
      case Collective::kAllreduce:
        in_count_ = out_count_ = own;
        break;
      case Collective::kReduce:
        in_count_ = own;
        out_count_ = at_root() || plan_.in_place ? own : 0;  // elsewhere memory to overwrite
        break;
      case Collective::kBroadcast:
        in_count_ = at_root() ? own : 0;
        out_count_ = own;
        break;
      case Collective::kReducescatter:
      case Collective::kScatter:
        in_count_ = plan_.collective == Collective::kScatter && !at_root() ? 0 : sent;
        out_count_ = own;
        out_offset_ = own_offset;
        break;
      case Collective::kAllgather:
      case Collective::kGather:
        in_count_ = own;
        out_count_ = plan_.collective == Collective::kGather && !at_root() ? 0 : received;
        in_offset_ = own_offset;
        break;
      case Collective::kAlltoall:
        in_count_ = sent;
        out_count_ = received;
        break;
      case Collective::kBarrier:
        break;
    }
  }

  std::string judge(const Result<void>& outcome, const std::byte* out) const {
    const std::string error = outcome ? "" : outcome.error().message;
    if (plan_.flaw == Flaw::kOwnChunk || plan_.flaw == Flaw::kList) {
      if (!outcome && outcome.error().kind == ErrorKind::kInvalidArgument) return "";
      return "no error about the argument: " + error;
    }
    if (plan_.flaw == Flaw::kDisagree) {
      if (outcome || outcome.error().kind == ErrorKind::kMismatch || is_refusal(outcome)) return "";
      return "an error that is no mismatch: " + error;
    }
    if (is_refusal(outcome)) return "";
    if (!outcome) return error;
    const bool is_result = plan_.collective != Collective::kReduce || at_root();
    for (std::size_t i = 0; is_result && i < out_count_; ++i) {
      if (!is_right(out, i)) return "element " + std::to_string(i) + " is wrong";
    }
    return "";
  }

  /// Not every algorithm takes every number of ranks or counts; all ranks refuse alike.
  bool is_refusal(const Result<void>& outcome) const {
    if (outcome || plan_.algorithm.empty()) return false;
    const ErrorKind kind = outcome.error().kind;
    return kind == ErrorKind::kInvalidArgument || kind == ErrorKind::kUnsupported;
  }

  bool is_right(const std::byte* out, std::size_t i) const {
    std::size_t r = static_cast<std::size_t>(plan_.root), at = i;
    switch (plan_.collective) {
      case Collective::kBroadcast:
        break;
      case Collective::kScatter:
        at += before(sent_, self_);
        break;
      case Collective::kAllgather:
      case Collective::kGather:
        for (r = 0; at >= received_[r]; ++r) at -= received_[r];
        break;
      case Collective::kAlltoall:
        for (r = 0; at >= received_[r]; ++r) at -= received_[r];
        at += before(plan_.lengths[r], self_);
        break;
      default:
        return is_reduced(out, i);
    }
    const std::size_t element = plan_.element();
    for (std::size_t b = 0; b < element; ++b) {
      if (out[i * element + b] != given(r, at, b)) return false;
    }
    return true;
  }

  bool is_reduced(const std::byte* out, std::size_t i) const {
    const bool scatters = plan_.collective == Collective::kReducescatter;
    const std::size_t at = i + (scatters ? before(sent_, self_) : 0);
    std::uint64_t sum = 0, found = 0;
    const std::size_t element = plan_.element();
    for (std::size_t r = 0; r < size_; ++r) {
      std::uint64_t term = 0;
      for (std::size_t b = 0; b < element; ++b) {
        term |= std::to_integer<std::uint64_t>(given(r, at, b)) << (8 * b);
      }
      sum = plan_.reduction == Reduction::kSum ? sum + term : sum ^ term;
    }
    std::memcpy(&found, out + i * element, element);
    return std::memcmp(&found, &sum, element) == 0;
  }

  const Plan& plan_;
  std::size_t self_, size_, count_ = 0;
  Counts sent_, received_;
  std::size_t in_count_ = 0, out_count_ = 0, in_offset_ = 0, out_offset_ = 0;
};

std::optional<std::uint64_t> number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

struct Ranks {
  const char* transport;
  int size;
  bool peer_memory;
};

class ExtentFuzz : public ::testing::TestWithParam<Ranks> {};

TEST_P(ExtentFuzz, NothingOutsideTheBuffersIsTouched) {
  const Ranks& ranks = GetParam();
  const std::uint64_t seed = number_from("FARANDOLE_TEST_SEED").value_or(20'261);
  const auto only = number_from("FARANDOLE_TEST_CALL");
  const std::size_t begin = only.value_or(0);
  const std::size_t end = only ? begin + 1 : full_run() ? 25'000 : 2'000;
  std::vector<std::atomic<int>> mismatches(end - begin);
  Contexts contexts = make_ranks(ranks.size, ranks.transport, ranks.peer_memory);
  const auto p = static_cast<std::size_t>(ranks.size);
  const std::string again = "FARANDOLE_TEST_SEED=" + std::to_string(seed);
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const auto self = static_cast<std::size_t>(world.rank().value());
    for (std::size_t call = begin; call < end; ++call) {
      const Plan plan = drawn(seed, call, ranks.size);
      const std::string wrong = Side(plan, self, p).run(world, mismatches[call - begin]);
      EXPECT_EQ(wrong, "") << again << " FARANDOLE_TEST_CALL=" << call << ": rank " << self << ", "
                           << name(plan.collective) << " by '" << plan.algorithm << "'";
    }
  });
  for (std::size_t call = begin; call < end; ++call) {
    const Plan plan = drawn(seed, call, ranks.size);
    const bool disagrees = plan.flaw == Flaw::kDisagree && plan.algorithm.empty();
    const int seen = mismatches[call - begin];
    EXPECT_TRUE(plan.flaw == Flaw::kDisagree || seen == 0) << again << " call " << call;
    EXPECT_TRUE(!disagrees || seen > 0) << again << " call " << call;
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, ExtentFuzz,
                         ::testing::Values(Ranks{"inproc", 1, true}, Ranks{"inproc", 2, true},
                                           Ranks{"inproc", 3, false}, Ranks{"inproc", 5, true},
                                           Ranks{"shm", 2, true}, Ranks{"tcp", 3, true},
                                           Ranks{"fault", 4, true}),
                         [](const auto& test) {
                           return std::string(test.param.transport) +
                                  std::to_string(test.param.size) +
                                  (test.param.peer_memory ? "" : "_staged");
                         });

}  // namespace
}  // namespace farandole::testing
