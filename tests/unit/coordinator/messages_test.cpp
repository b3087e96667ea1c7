// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "bootstrap/wire.hpp"
#include "unit/coordinator/job.hpp"

namespace farandole::coordinator {
namespace {

using test::tensor;

SharedRequest elaborate() {
  TensorRequest request;
  request.name = std::string("odd\0name", 8);
  request.collective = Collective::kReducescatter;
  request.reduction = Reduction::kPremultipliedSum;
  request.adasum = true;
  request.dtype = DType::kBFloat16;
  request.shape = {0, std::int64_t{1} << 40, 3};
  request.root = 7;
  request.prescale = -0.25;
  request.postscale = 3.5;
  request.leaves_out_joined = true;
  request.device = 3;
  request.group = "g";
  request.group_size = 12;
  return std::make_shared<const TensorRequest>(request);
}

Report::Item item(const SharedRequest& request, std::int32_t rank) {
  return {request, RankSet::of(rank), {}};
}

Report example_report() {
  Report report;
  report.items.push_back(item(elaborate(), 3));
  report.items.push_back(item(tensor("x"), 0));
  report.items.back().ranks.add(RankSet::Run{5, 9});
  report.items.back().disagreement = {6, tensor("x", {2})};
  report.invalid = {"a", "b"};
  report.joined.add(2);
  return report;
}

Decision example_decision() {
  Decision decision;
  decision.invalid = {"a", "b"};
  decision.joined = RankSet::of(4);
  decision.responses.push_back({elaborate(), "", RankSet::of(1)});
  decision.responses.push_back({tensor("x"), "an error", {}});
  decision.all_joined = 4;
  decision.parameters = Parameters{5, 6, -7};
  return decision;
}

void expect_equal(const Report& a, const Report& b) {
  ASSERT_EQ(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    EXPECT_EQ(*a.items[i].request, *b.items[i].request);
    EXPECT_EQ(a.items[i].ranks, b.items[i].ranks);
    ASSERT_EQ(a.items[i].disagreement.has_value(), b.items[i].disagreement.has_value());
    if (!a.items[i].disagreement) continue;
    EXPECT_EQ(a.items[i].disagreement->rank, b.items[i].disagreement->rank);
    EXPECT_EQ(*a.items[i].disagreement->request, *b.items[i].disagreement->request);
  }
  EXPECT_EQ(a.invalid, b.invalid);
  EXPECT_EQ(a.joined, b.joined);
}

// Goal: messages arrive as they were sent, or not at all.
// Method: encode and decode; every prefix and a byte too many are refused.
TEST(Messages, SurviveTheWire) {
  const std::string report = encode(example_report());
  const Result<Report> report_again = decode_report(report);
  ASSERT_TRUE(report_again);
  expect_equal(*report_again, example_report());

  const std::string decision = encode(example_decision());
  const Result<Decision> again = decode_decision(decision);
  ASSERT_TRUE(again);
  EXPECT_EQ(encode(*again), decision);
  ASSERT_EQ(again->responses.size(), 2u);
  EXPECT_EQ(*again->responses[0].request, *elaborate());
  EXPECT_EQ(again->responses[0].late, RankSet::of(1));
  EXPECT_EQ(again->responses[1].error, "an error");
  EXPECT_EQ(again->all_joined, 4);
  EXPECT_EQ(again->parameters, (Parameters{5, 6, -7}));
  EXPECT_TRUE(decode_report(encode(Report())));
  EXPECT_TRUE(decode_decision(encode(Decision())));

  for (std::size_t n = 0; n < report.size(); ++n) EXPECT_FALSE(decode_report(report.substr(0, n)));
  for (std::size_t n = 0; n < decision.size(); ++n) {
    EXPECT_FALSE(decode_decision(decision.substr(0, n)));
  }
  EXPECT_FALSE(decode_report(report + "x"));
  EXPECT_EQ(decode_decision(decision + "x").error().kind, ErrorKind::kInternal);
}

// Goal: messages that make no sense are refused, though they are whole.
// Method: one fault each.
TEST(Messages, MustMakeSense) {
  Report twice;
  twice.items = {item(tensor("x"), 0), item(tensor("x"), 1)};
  EXPECT_FALSE(decode_report(encode(twice)));
  Report nobody;
  nobody.items = {{tensor("x"), {}, {}}};
  EXPECT_FALSE(decode_report(encode(nobody)));
  Report unsorted;
  unsorted.invalid = {"b", "a"};
  EXPECT_FALSE(decode_report(encode(unsorted)));
  Report negative;
  negative.items = {item(tensor("x", {-1}), 0)};
  EXPECT_FALSE(decode_report(encode(negative)));
  const auto with_runs = [](std::vector<RankSet::Run> runs) {
    Writer writer;
    writer.u32(0).u32(0).u32(static_cast<std::uint32_t>(runs.size()));
    for (const RankSet::Run& run : runs) writer.i32(run.first).i32(run.last);
    return writer.bytes();
  };
  EXPECT_TRUE(decode_report(with_runs({{0, 1}, {3, 3}})));
  EXPECT_FALSE(decode_report(with_runs({{0, 1}, {2, 3}}))) << "one run in two";
  EXPECT_FALSE(decode_report(with_runs({{3, 3}, {0, 1}})));
  EXPECT_FALSE(decode_report(with_runs({{2, 1}})));
  EXPECT_FALSE(decode_report(with_runs({{-1, 1}})));
  EXPECT_FALSE(decode_report(with_runs({{0, 0x7fffffff}})));
}

// Goal: counts are not believed.
// Method: a report and a decision that announce four thousand million of something.
TEST(Messages, DoNotAllocateWhatIsAnnounced) {
  EXPECT_FALSE(decode_report(Writer().u32(0xffffffff).text("x").bytes()));
  EXPECT_FALSE(decode_report(Writer().u32(0).u32(0xffffffff).text("x").bytes()));
  EXPECT_FALSE(decode_report(Writer().u32(0).u32(0).u32(0xffffffff).u64(0).bytes()));
  EXPECT_FALSE(decode_decision(Writer().u32(0).u32(0).u32(0xffffffff).u64(0).bytes()));
  EXPECT_FALSE(decode_decision(Writer()
                                   .u32(0)
                                   .u32(0)
                                   .u32(1)
                                   .text("x")
                                   .u32(0)
                                   .u32(0xffffffff)
                                   .text(std::string(64, 'x'))
                                   .bytes()));
}

// Goal: no bytes crash, and what is accepted is well-formed.
// Method: 40,000 messages, mutated at random or random altogether, in buffers of their own so that
// a sanitizer sees each byte too many; whatever is accepted is what it would be encoded as.
TEST(Messages, WithstandAnyBytes) {
  const std::string originals[] = {encode(example_report()), encode(example_decision())};
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 40'000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    std::string bytes = originals[seed % 2];
    if (seed % 10 == 9) bytes.assign(random() % 200, '\0');
    for (std::size_t left = seed % 10 == 9 ? bytes.size() : random() % 4; left > 0; --left) {
      const std::size_t place = bytes.empty() ? 0 : random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes.resize(place);
          break;
        case 1:
          bytes.insert(place, originals[random() % 2].substr(random() % 50, random() % 9));
          break;
        case 2:
          bytes.erase(place, random() % 9);
          break;
        default:
          if (!bytes.empty()) bytes[place] = static_cast<char>(random() % 3 ? random() : 0xff);
      }
    }
    const auto exact = std::make_unique<char[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), exact.get());
    const std::string_view view(exact.get(), bytes.size());
    if (const Result<Report> report = decode_report(view)) {
      ASSERT_EQ(encode(*report), bytes);
      ++accepted;
    }
    if (const Result<Decision> decision = decode_decision(view)) {
      ASSERT_EQ(encode(*decision), bytes);
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 1000);
}

// Goal: a merged report is the same however the tree is cut, and names the lowest ranks.
// Method: random reports of five ranks, some of whom disagree; merged from the left and from the
// right.
TEST(Merge, IsAssociative) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto reports = [&] {
      std::mt19937_64 random(seed);
      std::vector<Report> all(5);
      for (std::int32_t rank = 0; rank < 5; ++rank) {
        Report& report = all[static_cast<std::size_t>(rank)];
        std::vector<std::string> names{"a", "b", "c", "d"};
        std::shuffle(names.begin(), names.end(), random);
        names.resize(random() % 5);
        for (const std::string& name : names) {
          report.items.push_back(
              item(tensor(name, {static_cast<std::int64_t>(random() % 4 / 2)}), rank));
          if (random() % 4 == 0) report.invalid.push_back(name);
        }
        std::sort(report.invalid.begin(), report.invalid.end());
        if (random() % 4 == 0) report.joined.add(rank);
      }
      return all;
    };
    std::vector<Report> left = reports();
    for (std::size_t i = 1; i < 5; ++i) merge(left[0], std::move(left[i]));
    std::vector<Report> right = reports();
    for (std::size_t i = 4; i > 0; --i) merge(right[i - 1], std::move(right[i]));
    expect_equal(left[0], right[0]);
    const std::vector<Report> original = reports();
    for (const Report::Item& merged : left[0].items) {
      RankSet ranks;
      std::optional<std::int32_t> other;
      for (const Report& report : original) {
        for (const Report::Item& one : report.items) {
          if (one.request->name != merged.request->name) continue;
          EXPECT_TRUE(!ranks.empty() || *merged.request == *one.request);
          if (!other && !agree(*merged.request, *one.request)) other = one.ranks.front();
          ranks.add(one.ranks);
        }
      }
      EXPECT_EQ(merged.ranks, ranks);
      ASSERT_EQ(merged.disagreement.has_value(), other.has_value());
      EXPECT_TRUE(!other || merged.disagreement->rank == *other);
    }
  }
}

// Goal: what lower ranks say later becomes the first request.
// Method: items of ranks 3 and 1, in this order, as rank 0 gets them in two cycles.
TEST(Merge, PrefersLowRanks) {
  Report::Item into = item(tensor("x", {3}), 3);
  Report::Item lower = item(tensor("x", {1}), 1);
  merge(into, lower);
  EXPECT_EQ(into.request->shape.front(), 1);
  EXPECT_EQ(into.ranks.count(), 2);
  ASSERT_TRUE(into.disagreement);
  EXPECT_EQ(into.disagreement->rank, 3);
}

}  // namespace
}  // namespace farandole::coordinator
