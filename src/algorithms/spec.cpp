// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/spec.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>
#include <string>

#include "algorithms/registered.hpp"

namespace farandole {
namespace {

constexpr std::int64_t kRadixMin = 2, kRadixMax = 8;
constexpr std::int64_t kChunksMax = 4096;       // pieces of 16 KiB of a message of 64 MiB
constexpr std::int64_t kDirectLayerMax = 1024;  // as many lanes

std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at != std::string_view::npos;) {
    at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at != std::string_view::npos) text.remove_prefix(at + 1);
  }
  return parts;
}

// A number at the start of `text`, which is removed; nothing if there is none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  if (text.starts_with('-')) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  const auto value = take_number(text);
  return text.empty() ? value : std::nullopt;
}

std::optional<Layer::Kind> layer_kind(std::string_view text) {
  if (text.empty() || text == "ring") return Layer::Kind::kRing;
  if (text == "halving") return Layer::Kind::kHalving;
  if (text == "direct") return Layer::Kind::kDirect;
  return std::nullopt;
}

// One option of one algorithm, for error messages about it.
struct Option {
  const AlgorithmInfo& info;
  std::string_view key, value;

  Error wrong(const std::string& allowed) const {
    return {ErrorKind::kInvalidArgument,
            "algorithm " + quoted(info.name) + " for " + std::string(name(info.collective)) +
                ": option " + quoted(key) + " is " + quoted(value) + ", allowed is " + allowed};
  }
};

Result<void> read_layers(const Option& option, AlgorithmParameters& parameters) {
  const std::string ranks = std::to_string(parameters.rank_count);
  std::int64_t product = 1;
  const std::vector<std::string_view> parts = split(option.value, '/');
  for (std::string_view part : parts) {
    const auto size = take_number(part);
    const auto kind = layer_kind(part);
    if (!size || *size < 1 || !kind) {
      return option.wrong("sizes as in 4ring/8direct/2halving, innermost first, from 1 on");
    }
    if (*kind == Layer::Kind::kHalving && !std::has_single_bit(static_cast<std::uint64_t>(*size))) {
      return option.wrong("halving in layers whose size is a power of two");
    }
    if (*kind == Layer::Kind::kDirect && *size > kDirectLayerMax) {
      return option.wrong("direct in layers of at most " + std::to_string(kDirectLayerMax));
    }
    if (*size > parameters.rank_count / product) break;  // too large, whatever follows
    product *= *size;
    parameters.layers.push_back({*size, *kind});
  }
  if (product != parameters.rank_count || parameters.layers.size() != parts.size()) {
    return option.wrong("layers whose product is " + ranks + ", the number of ranks");
  }
  return {};
}

Result<void> read_order(const Option& option, AlgorithmParameters& parameters) {
  const auto count = static_cast<std::size_t>(parameters.rank_count);
  const std::vector<std::string_view> parts = split(option.value, '/');
  std::vector<bool> seen(count);
  for (const std::string_view part : parts) {
    const auto rank = whole_number(part);
    if (!rank || *rank >= parameters.rank_count) break;
    if (seen[static_cast<std::size_t>(*rank)]) break;
    seen[static_cast<std::size_t>(*rank)] = true;
    parameters.order.push_back(static_cast<std::int32_t>(*rank));
  }
  if (parameters.order.size() != count || parts.size() != count) {
    return option.wrong("each rank from 0 to " + std::to_string(count - 1) +
                        " once, as in 0/2/1/3");
  }
  return {};
}

Result<void> read_bounded(const Option& option, std::int64_t low, std::int64_t high,
                          std::int64_t& result) {
  const auto value = whole_number(option.value);
  if (!value || *value < low || *value > high) {
    return option.wrong(std::to_string(low) + " to " + std::to_string(high));
  }
  result = *value;
  return {};
}

Result<void> read(const Option& option, AlgorithmParameters& parameters) {
  if (option.key == "layers") return read_layers(option, parameters);
  if (option.key == "order") return read_order(option, parameters);
  if (option.key == "radix") return read_bounded(option, kRadixMin, kRadixMax, parameters.radix);
  return read_bounded(option, 1, kChunksMax, parameters.chunks);
}

Error unknown_option(const AlgorithmInfo& info, std::string_view given) {
  std::string allowed;
  for (const std::string_view key : split(info.options, ' ')) {
    if (!key.empty()) allowed += (allowed.empty() ? "" : ", ") + std::string(key) + "=...";
  }
  return {ErrorKind::kInvalidArgument, "algorithm " + quoted(info.name) + " for " +
                                           std::string(name(info.collective)) + ": no option " +
                                           quoted(given) + "; there is " +
                                           (allowed.empty() ? "none" : allowed)};
}

Result<void> fits(const AlgorithmInfo& info, std::int64_t rank_count, std::int64_t root) {
  const auto wrong = [&](const std::string& what, std::int64_t given, std::int64_t low,
                         std::int64_t high) {
    return Error{ErrorKind::kInvalidArgument,
                 "algorithm " + quoted(info.name) + " for " + std::string(name(info.collective)) +
                     ": " + what + " is " + std::to_string(given) + ", allowed is " +
                     std::to_string(low) + " to " + std::to_string(high)};
  };
  if (rank_count < 1 || rank_count > info.ranks_max) {
    return wrong("the number of ranks", rank_count, 1, info.ranks_max);
  }
  if (has_root(info.collective) && (root < 0 || root >= rank_count)) {
    return wrong("the root", root, 0, rank_count - 1);
  }
  return {};
}

}  // namespace

Result<AlgorithmSpec> parse_spec(Collective collective, std::string_view spec,
                                 std::int64_t rank_count, std::int64_t root) {
  const std::size_t colon = spec.find(':');
  const auto found = find_algorithm(collective, spec.substr(0, colon));
  if (!found) return found.error();
  AlgorithmSpec result{*found, {.rank_count = rank_count, .root = root}};
  const AlgorithmInfo& info = **found;
  if (Result<void> fit = fits(info, rank_count, root); !fit) return fit.error();
  if (info.build == nullptr && info.delegate == nullptr) {
    const auto written = written_schedule(info, rank_count, root);
    if (!written) return written.error();
  }
  if (colon == std::string_view::npos) return result;
  const std::vector<std::string_view> known = split(info.options, ' ');
  std::vector<std::string_view> given;
  for (const std::string_view part : split(spec.substr(colon + 1), ',')) {
    const std::size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const bool exists = !key.empty() && std::find(known.begin(), known.end(), key) != known.end();
    const bool again = std::find(given.begin(), given.end(), key) != given.end();
    if (!exists || again || equals == std::string_view::npos) return unknown_option(info, part);
    given.push_back(key);
    const Option option{info, key, part.substr(equals + 1)};
    if (Result<void> done = read(option, result.parameters); !done) return done.error();
  }
  return result;
}

}  // namespace farandole
