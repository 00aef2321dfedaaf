// {fmt} as an object of the portable program: Debian has it as headers and as a shared library, not as a static one.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
#if FMT_VERSION < 110000
template FMT_API std::locale locale_ref::get<std::locale>() const;
#endif
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
