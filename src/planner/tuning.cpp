// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/tuning.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "algorithms/registry.hpp"
#include "algorithms/spec.hpp"

namespace farandole {
namespace {

constexpr std::string_view kHeader = "farandole-tuning 1";
constexpr std::string_view kBlank = " \t\r";

std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

std::vector<std::string_view> words_of(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = line.find_first_not_of(kBlank, at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// One line of a tuning file, with its place for error messages.
class Line {
 public:
  Line(std::string place, std::vector<std::string_view> words,
       const std::vector<std::string_view>& transports)
      : place_(std::move(place)), words_(std::move(words)), transports_(transports) {}

  Result<TuningEntry> read() const {
    TuningEntry entry;
    const auto collective = parse_collective(words_.front());
    if (!collective) return wrong("collective", words_.front(), "allreduce, broadcast, ...");
    entry.collective = *collective;
    if (words_.size() < 2) return wrong("algorithm", "missing", "one at the end of the line");
    for (std::size_t i = 1; i + 1 < words_.size(); ++i) {
      if (auto done = condition(words_[i], entry); !done) return done.error();
    }
    entry.spec = words_.back();
    if (auto known = check_spec(entry); !known) return known.error();
    return entry;
  }

 private:
  Error wrong(std::string_view what, std::string_view given, const std::string& allowed) const {
    return {ErrorKind::kInvalidArgument,
            place_ + ": " + std::string(what) + " is " + quoted(given) + ", allowed is " + allowed};
  }

  Result<void> condition(std::string_view word, TuningEntry& entry) const {
    const std::size_t sign = word.find_first_of("=<>");
    const std::string_view key = word.substr(0, sign);
    const std::string_view rest = sign == std::string_view::npos ? "" : word.substr(sign);
    if (key == "ranks" && rest.starts_with('=')) return count(word, rest.substr(1), entry.ranks);
    if (key == "hosts" && rest.starts_with('=')) return count(word, rest.substr(1), entry.hosts);
    if (key == "transport" && rest.starts_with('=') &&
        std::ranges::find(transports_, rest.substr(1)) != transports_.end()) {
      entry.transport = rest.substr(1);
      return {};
    }
    if (word.starts_with("bytes<=")) return bytes(word, rest.substr(2), entry.bytes_max);
    if (word.starts_with("bytes>")) {
      return bytes(word, rest.substr(1), entry.bytes_above.emplace());
    }
    std::string names;
    for (const std::string_view name : transports_) {
      names += (names.empty() ? "" : "|") + std::string(name);
    }
    return wrong("condition", word,
                 "ranks=N, hosts=N, transport=" + names + ", bytes>N or bytes<=N");
  }

  Result<void> count(std::string_view word, std::string_view text, std::int64_t& into) const {
    const auto value = number<std::int64_t>(text);
    if (!value || *value < 1 || *value > kRanksMax) {
      return wrong("condition", word, "a number from 1 to " + std::to_string(kRanksMax));
    }
    into = *value;
    return {};
  }

  Result<void> bytes(std::string_view word, std::string_view text, std::uint64_t& into) const {
    const auto value = number<std::uint64_t>(text);
    if (!value) return wrong("condition", word, "a whole number of bytes, as in bytes<=16384");
    into = *value;
    return {};
  }

  /// Checks all options if the number of ranks is known, else only the name.
  Result<void> check_spec(const TuningEntry& entry) const {
    const std::string_view name = std::string_view(entry.spec).substr(0, entry.spec.find(':'));
    const auto known = find_algorithm(entry.collective, name);
    if (!known) return Error{ErrorKind::kInvalidArgument, place_ + ": " + known.error().message};
    if (entry.ranks == 0) return {};
    const auto parsed = parse_spec(entry.collective, entry.spec, entry.ranks, 0);
    if (!parsed) return Error{ErrorKind::kInvalidArgument, place_ + ": " + parsed.error().message};
    return {};
  }

  const std::string place_;
  const std::vector<std::string_view> words_;
  const std::vector<std::string_view>& transports_;
};

}  // namespace

bool TuningEntry::matches(Collective asked, std::uint64_t bytes, const GroupShape& group) const {
  if (asked != collective) return false;
  if (ranks != 0 && ranks != group.ranks) return false;
  if (hosts != 0 && hosts != group.hosts) return false;
  if (!transport.empty() && transport != group.transport) return false;
  return bytes <= bytes_max && (!bytes_above || bytes > *bytes_above);
}

std::string_view TuningTable::find(Collective collective, std::uint64_t bytes,
                                   const GroupShape& group) const {
  for (const TuningEntry& entry : entries) {
    if (entry.matches(collective, bytes, group)) return entry.spec;
  }
  return {};
}

Result<TuningTable> parse_tuning(std::string_view text, const std::string& file,
                                 const std::vector<std::string_view>& transports) {
  TuningTable table;
  bool headed = false;
  for (std::size_t at = 0, line = 1; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string place = file + " line " + std::to_string(line);
    const std::string_view whole = text.substr(at, end - at);
    at = end + 1;
    std::vector<std::string_view> words = words_of(whole);
    if (words.empty()) continue;
    if (!headed) {
      headed = words.size() == 2 && words[0] == "farandole-tuning" && words[1] == "1";
      if (headed) continue;
      return Error{ErrorKind::kInvalidArgument, place + ": the first line is " + quoted(whole) +
                                                    ", allowed is " + quoted(kHeader)};
    }
    auto entry = Line(place, std::move(words), transports).read();
    if (!entry) return entry.error();
    table.entries.push_back(*std::move(entry));
  }
  return table;
}

std::string to_text(const TuningTable& table) {
  std::string text = std::string(kHeader) + "\n";
  for (const TuningEntry& entry : table.entries) {
    text += name(entry.collective);
    if (entry.ranks != 0) text += " ranks=" + std::to_string(entry.ranks);
    if (entry.hosts != 0) text += " hosts=" + std::to_string(entry.hosts);
    if (!entry.transport.empty()) text += " transport=" + entry.transport;
    if (entry.bytes_above) text += " bytes>" + std::to_string(*entry.bytes_above);
    if (entry.bytes_max != TuningEntry::kNoLimit) {
      text += " bytes<=" + std::to_string(entry.bytes_max);
    }
    text += " " + entry.spec + "\n";
  }
  return text;
}

}  // namespace farandole
