// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordinator/controller.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "coordinator/table.hpp"

namespace farandole::coordinator {
namespace {

// Status bits travel complemented, so that AND over the ranks tells whether any is set.
constexpr std::uint64_t kTalks = 1;
constexpr std::uint64_t kChanges = 2;
constexpr std::uint32_t kWordBits = 64;

void set_bit(std::span<std::uint64_t> bits, std::uint32_t position) {
  bits[position / kWordBits] |= std::uint64_t{1} << position % kWordBits;
}

void clear_bit(std::span<std::uint64_t> bits, std::uint32_t position) {
  bits[position / kWordBits] &= ~(std::uint64_t{1} << position % kWordBits);
}

std::chrono::nanoseconds sooner(std::chrono::nanoseconds a, std::chrono::nanoseconds b) {
  if (a.count() <= 0 || b.count() <= 0) return std::max(a, b);
  return std::min(a, b);
}

const std::shared_ptr<const RankSet>& nobody() {
  static const auto set = std::make_shared<const RankSet>();
  return set;
}

}  // namespace

Controller::Controller(const ControllerOptions& options)
    : options_(options),
      cache_(options.cache_capacity),
      joined_(nobody()),
      parameters_(options.parameters) {
  if (options.rank == 0) {
    table_ = std::make_unique<Table>(Table::Limits{options.rank_count, options.stall_warning,
                                                   options.stall_shutdown, options.names});
  }
}

Controller::~Controller() = default;
Controller::Controller(Controller&&) noexcept = default;

void Controller::add(std::vector<SharedRequest> requests, Clock::time_point now) {
  const std::size_t count = requests.size();
  if (count == 0) return;
  if (count > 1 && requests.front()->group.empty()) {
    for (SharedRequest& request : requests) add({std::move(request)}, now);
    return;
  }
  const auto submission =
      submissions_.insert(submissions_.end(), Submission{std::move(requests), count, now});
  for (std::size_t i = 0; i < count; ++i) {
    open_.emplace(submission->requests[i]->name, Entry{submission, i});
  }
  changed_ = true;
}

void Controller::join() {
  changed_ = changed_ || !joined_self_;
  joined_self_ = true;
}

void Controller::propose_parameters(const Parameters& parameters) {
  proposed_parameters_ = parameters;
  changed_ = true;
}

std::vector<std::uint64_t> Controller::propose(Clock::time_point now) {
  const std::uint32_t word_count = (cache_.extent() + kWordBits - 1) / kWordBits;
  const bool everything = takes_part_without_data();
  std::vector<std::uint64_t> words(1 + word_count, everything ? ~std::uint64_t{0} : 0);
  const std::span bits = std::span(words).subspan(1);
  join_proposed_ = joined_self_;
  bool talk = join_proposed_ && !join_reported_;
  for (Submission& submission : submissions_) {
    if (submission.state == State::kReported) continue;
    if (offer(submission, now, bits)) continue;
    talk = true;
    if (everything) withhold(submission, bits);
  }
  if (table_) {
    table_->inspect(*joined_, now, stalls_);
    talk = talk || proposed_parameters_ || table_->overdue(now);
  }
  words[0] = ~((talk ? kTalks : 0) | (changed_ ? kChanges : 0));
  changed_ = false;
  ++statistics_.cycles;
  return words;
}

// Sets the bits of all requests of a submission, or of none. None if this rank joins, since rank 0
// has to know that they still get data from it. None if the submission has waited for so long that
// rank 0 should find out which ranks are missing.
bool Controller::offer(Submission& submission, Clock::time_point now,
                       std::span<std::uint64_t> bits) {
  const auto patience = sooner(options_.stall_warning, options_.stall_shutdown);
  const bool stalls = patience.count() > 0 && now - submission.since >= patience;
  bool hit = submission.state != State::kUncached && !join_proposed_ && !stalls;
  positions_.clear();
  for (std::size_t i = 0; hit && i < submission.requests.size(); ++i) {
    const auto position = cache_.find(*submission.requests[i]);
    hit = position.has_value();
    if (hit) positions_.push_back(*position);
  }
  submission.state = hit ? State::kProposed : State::kUncached;
  if (!hit) return false;
  for (const std::uint32_t position : positions_) set_bit(bits, position);
  return true;
}

void Controller::withhold(const Submission& submission, std::span<std::uint64_t> bits) const {
  for (const SharedRequest& request : submission.requests) {
    if (const auto position = cache_.position(request->name)) clear_bit(bits, *position);
  }
}

void Controller::conclude(std::span<const std::uint64_t> all) {
  talks_ = (all[0] & kTalks) == 0;
  anybody_changed_ = (all[0] & kChanges) == 0;
  if (talks_) ++statistics_.talks;
  std::vector<std::uint32_t> positions = agreed_positions(all.subspan(1));
  keep_whole_groups(positions);
  std::vector<std::string> errors = objections(positions);
  ready_.reserve(ready_.size() + positions.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const SharedRequest request = cache_.at(positions[i]);
    const bool own = answer(request->name, State::kProposed);
    if (own) ++statistics_.hits;
    std::string error = errors.empty() ? std::string() : std::move(errors[i]);
    if (error.empty()) {
      cache_.touch(positions[i]);
    } else {
      cache_.erase(request->name);
    }
    ready_.push_back({{request, std::move(error), {}}, joined_, own});
  }
  for (Submission& submission : submissions_) {
    if (submission.state == State::kProposed) submission.state = State::kWaiting;
  }
}

std::vector<std::uint32_t> Controller::agreed_positions(std::span<const std::uint64_t> bits) const {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t word = 0; word < bits.size(); ++word) {
    for (std::uint64_t left = bits[word]; left != 0; left &= left - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(left));
      if (cache_.used(word * kWordBits + bit)) positions.push_back(word * kWordBits + bit);
    }
  }
  return positions;
}

// Ranks may disagree on the names under one label and still have some of them in common; those do
// not run on their own.
void Controller::keep_whole_groups(std::vector<std::uint32_t>& positions) const {
  std::unordered_map<std::string_view, std::uint32_t> counts;
  for (const std::uint32_t position : positions) {
    const TensorRequest& request = *cache_.at(position);
    if (!request.group.empty()) ++counts[request.group];
  }
  if (counts.empty()) return;
  std::erase_if(positions, [&](std::uint32_t position) {
    const TensorRequest& request = *cache_.at(position);
    return !request.group.empty() && counts[request.group] != request.group_size;
  });
}

// Why each of these cannot run now; empty if all can, as always when no rank has joined.
std::vector<std::string> Controller::objections(const std::vector<std::uint32_t>& positions) const {
  if (joined_->empty()) return {};
  std::vector<std::string> errors(positions.size());
  std::unordered_map<std::string_view, std::string> causes;  // by group
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const TensorRequest& request = *cache_.at(positions[i]);
    errors[i] = objection(request, *joined_, options_.names);
    if (!errors[i].empty() && !request.group.empty()) causes.emplace(request.group, errors[i]);
  }
  if (causes.empty()) return errors;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const TensorRequest& request = *cache_.at(positions[i]);
    const auto cause = causes.find(request.group);
    if (errors[i].empty() && cause != causes.end()) {
      errors[i] = fails_with_group(request, cause->second);
    }
  }
  return errors;
}

Report Controller::report() {
  Report report;
  for (Submission& submission : submissions_) {
    if (submission.state != State::kUncached) continue;
    for (const SharedRequest& request : submission.requests) {
      report.items.push_back({request, RankSet::of(options_.rank), {}});
      if (cache_.contains(request->name)) report.invalid.push_back(request->name);
      ++statistics_.misses;
    }
    submission.state = State::kReported;
  }
  std::sort(report.invalid.begin(), report.invalid.end());
  if (join_proposed_ && !std::exchange(join_reported_, true)) report.joined.add(options_.rank);
  return report;
}

Decision Controller::decide(Report&& all, Clock::time_point now) {
  Decision decision;
  decision.invalid = std::move(all.invalid);
  decision.joined = std::move(all.joined);
  RankSet joined = *joined_;
  joined.add(decision.joined);
  for (Report::Item& item : all.items) table_->add(std::move(item), now);
  decision.responses = table_->conclude(joined, now);
  if (!decision.joined.empty() && joined.count() == options_.rank_count) {
    decision.all_joined = decision.joined.back();
  }
  decision.parameters = std::exchange(proposed_parameters_, {});
  return decision;
}

void Controller::apply(const Decision& decision) {
  for (const std::string& name : decision.invalid) {
    if (cache_.erase(name)) ++statistics_.invalidations;
  }
  if (!decision.joined.empty()) {
    RankSet joined = *joined_;
    joined.add(decision.joined);
    joined_ = std::make_shared<const RankSet>(std::move(joined));
  }
  ready_.reserve(ready_.size() + decision.responses.size());
  for (const Response& response : decision.responses) {
    const bool own = answer(response.request->name, State::kReported);
    if (!response.error.empty()) {
      cache_.erase(response.request->name);
    } else if (response.request->collective != Collective::kBarrier) {
      cache_.put(response.request);
    }
    ready_.push_back({response, joined_, own});
    if (!response.late.empty()) {
      ready_.back().joined = std::make_shared<const RankSet>(joined_->minus(response.late));
    }
  }
  if (decision.parameters) parameters_ = *decision.parameters;
  if (decision.all_joined) {
    joined_ = nobody();
    joined_self_ = join_proposed_ = join_reported_ = false;
    all_joined_ = decision.all_joined;
  }
}

// Whether this rank has an open request of that name in that state; if so, closes it.
bool Controller::answer(const std::string& name, State state) {
  const auto found = open_.find(name);
  if (found == open_.end() || found->second.submission->state != state) return false;
  const auto [submission, index] = found->second;
  open_.erase(found);  // its key lives in the request
  submission->requests[index] = nullptr;
  if (--submission->open_count == 0) submissions_.erase(submission);
  return true;
}

Controller::Statistics Controller::statistics() const {
  Statistics statistics = statistics_;
  statistics.evictions = cache_.evictions();
  return statistics;
}

}  // namespace farandole::coordinator
