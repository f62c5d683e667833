# LlmProxy.pm - a process between the backends and the engine that breaks what passes through it.
#
# It takes the place of the engine's socket: the supervisor's own, which new engines inherit, goes on
# under another name. A plan says for each connection, counted from 0, what happens to it: nothing, or
# { to => 'engine' or 'backend', at => BYTES, do => ... } with
#   cut    both ends are closed after so many bytes to that side
#   mute   nothing goes to that side any more, the connection stays
#   flip   one bit of the byte at this place is turned over, bit => 0 .. 7
#   drip   from there on a byte at a time
package LlmProxy;

use strict;
use warnings;
use Fcntl qw(O_RDONLY O_DIRECTORY);
use IO::Select;
use IO::Socket::UNIX;
use POSIX ();
use Socket;

my $socket_name = 'pgsql_tmp.llm_infer.sock';

# plan: sub that is given the number of a connection. end() must be called.
sub begin
{
	my ($class, $node, $plan) = @_;
	my $path = $node->data_dir . "/$socket_name";
	rename $path, "$path.real" or die "rename $path: $!";
	# the full path may be longer than the name of a socket can be
	sysopen my $dir, $node->data_dir, O_RDONLY | O_DIRECTORY or die "open data directory: $!";
	my $here = '/proc/self/fd/' . fileno($dir);
	my $server = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$here/$socket_name", Listen => 100)
	  or die "listen: $!";
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' foreach qw(INT TERM HUP);
		$SIG{PIPE} = 'IGNORE';
		eval { serve($server, "$here/$socket_name.real", $plan); };
		POSIX::_exit(1);
	}
	return bless { pid => $pid, path => $path }, $class;
}

# The engine's socket is back in its place; connections through the proxy are cut.
sub end
{
	my ($self) = @_;
	kill 'TERM', $self->{pid};
	waitpid $self->{pid}, 0;
	rename "$self->{path}.real", $self->{path} or die "rename $self->{path}: $!";
	return;
}

sub serve
{
	my ($server, $real, $plan) = @_;
	my $n = 0;
	my %pipes; # by descriptor of the side that is read
	my $reading = IO::Select->new($server);
	my $writing = IO::Select->new;
	while (1)
	{
		my ($readable, $writable) = IO::Select->select($reading, $writing, undef);
		foreach my $s (@{ $writable // [] })
		{
			my ($pipe) = grep { $_->{out} == $s } values %pipes;
			push_bytes($pipe) if $pipe;
		}
		foreach my $s (@{ $readable // [] })
		{
			if ($s == $server)
			{
				my $backend = $server->accept or next;
				my $engine = IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => $real) or next;
				my $fate = $plan->($n++) // {};
				$_->blocking(0), $reading->add($_) foreach $backend, $engine;
				foreach my $p ([ $backend, $engine, 'engine' ], [ $engine, $backend, 'backend' ])
				{
					my ($in, $out, $to) = @$p;
					$pipes{ fileno $in } = { $fate->{to} && $fate->{to} eq $to ? %$fate : (),
						in => $in, out => $out, held => '', passed => 0 };
				}
				next;
			}
			my $pipe = $pipes{ fileno $s } or next;
			my $got = sysread $s, my $bytes, 65536;
			next if !defined $got && $!{EAGAIN};
			$pipe->{held} .= $bytes if $got;
			$pipe->{ended} = 1 unless $got && push_bytes($pipe);
		}
		foreach my $pipe (grep { $_->{ended} } values %pipes)
		{
			delete $pipes{ fileno $_ }, $reading->remove($_), $writing->remove($_) foreach $pipe->{in}, $pipe->{out};
			close $_ foreach $pipe->{in}, $pipe->{out};
		}
		foreach my $pipe (values %pipes)
		{
			$pipe->{held} ne '' ? $writing->add($pipe->{out}) : $writing->remove($pipe->{out});
		}
	}
	return;
}

# Hand on what is held, as the plan allows; false when the connection has reached its end.
sub push_bytes
{
	my ($pipe) = @_;
	my %left = map { $_ => $pipe->{$_} - $pipe->{passed} } grep { defined $pipe->{$_} } qw(cut mute drip flip);
	my $n = length $pipe->{held};
	substr($pipe->{held}, $n = $left{mute}) = '' if defined $left{mute} && $n > $left{mute};
	$n = $left{cut} if defined $left{cut} && $n > $left{cut};
	$n = 1 if defined $left{drip} && $left{drip} <= 0 && $n > 1;
	if (defined $left{flip} && $left{flip} < $n)
	{
		substr($pipe->{held}, $left{flip}, 1) ^= chr(1 << $pipe->{bit});
		delete $pipe->{flip};
	}
	while ($n > 0)
	{
		my $sent = syswrite $pipe->{out}, $pipe->{held}, $n;
		last if !defined $sent && $!{EAGAIN};
		return 0 unless $sent;
		substr($pipe->{held}, 0, $sent) = '';
		$pipe->{passed} += $sent;
		$n -= $sent;
	}
	return !(defined $pipe->{cut} && $pipe->{passed} >= $pipe->{cut});
}

1;
